import type { Batch } from "./batch.ts";
import type { NewPlant } from "../plant/plant.ts";

/** How many plants may be without an outcome at once. */
export interface AdmissionLimits {
  readonly queueLimit: number;
  /** How many bytes their texts may take; a plant alone may take more. */
  readonly queueBytes: number;
}

/** Counts the plants without an outcome, and what they take in memory: admission control. */
export class Admission {
  readonly #limits: AdmissionLimits;
  #size = 0;
  #bytes = 0;

  constructor(limits: AdmissionLimits) {
    this.#limits = limits;
  }

  /** How many plants are without an outcome. */
  get size(): number {
    return this.#size;
  }

  /** Admits a plant. Returns false if the queue is full. */
  admit(plant: NewPlant): boolean {
    const { queueLimit, queueBytes } = this.#limits;
    const bytes = bytesOf(plant);
    if (this.#size >= queueLimit || (this.#size > 0 && this.#bytes + bytes > queueBytes)) return false;
    this.#size++;
    this.#bytes += bytes;
    return true;
  }

  /** Makes room again: these plants have their outcome. */
  release(adds: Batch): void {
    this.#size -= adds.length;
    for (const { plant } of adds) this.#bytes -= bytesOf(plant);
  }
}

/** What the texts of a plant take: JavaScript needs up to two bytes for a UTF-16 code unit. */
function bytesOf({ name, tag = "" }: NewPlant): number {
  return 2 * (name.length + tag.length);
}
