import type { NewPlant } from "../../plant/plant.ts";
import type { StoreOutcome } from "../plant_store.ts";

// A batch is one string on its way to the Worker, and one on its way back: Bun copies a string without a structured
// clone, which took half of the way for a batch of one, and a quarter for a large one.

/** A batch on its way to the Worker. */
export interface BatchMessage {
  /** The response has the same. */
  readonly id: number;
  readonly timeoutMs: number;
  readonly plants: readonly NewPlant[];
}

/** Writes a batch as a line of numbers, of which each plant has three, and all texts behind it. */
export function encodeBatch({ id, timeoutMs, plants }: BatchMessage): string {
  let numbers = `${id} ${timeoutMs}`;
  let texts = "";
  for (const { id: plantId, name, tag } of plants) {
    numbers += ` ${plantId} ${name.length} ${tag === undefined ? NO_TAG : tag.length}`;
    texts += tag === undefined ? name : name + tag;
  }
  return `${numbers}\n${texts}`;
}

const NO_TAG = "-";

/** The inverse of {@linkcode encodeBatch}. */
export function decodeBatch(message: string): BatchMessage {
  let at = message.indexOf("\n");
  const [id, timeoutMs, ...numbers] = message.slice(0, at++).split(" ");
  const plants: NewPlant[] = [];
  for (let index = 0; index < numbers.length; index += 3) {
    const [plantId, nameLength, tagLength] = [
      BigInt(numbers[index] as string),
      Number(numbers[index + 1]),
      numbers[index + 2],
    ];
    const name = message.slice(at, (at += nameLength));
    if (tagLength === NO_TAG) plants.push({ id: plantId, name });
    else plants.push({ id: plantId, name, tag: message.slice(at, (at += Number(tagLength))) });
  }
  return { id: Number(id), timeoutMs: Number(timeoutMs), plants };
}

/** The outcomes of a batch on their way back. */
export interface OutcomesMessage {
  readonly id: number;
  readonly outcomes: readonly StoreOutcome[];
}

/** Writes outcomes as a letter each. */
export function encodeOutcomes({ id, outcomes }: OutcomesMessage): string {
  let letters = "";
  for (const outcome of outcomes) letters += outcome[0];
  return `${id} ${letters}`;
}

const OUTCOMES: Readonly<Record<string, StoreOutcome>> = { a: "added", p: "present", c: "conflict", l: "locked" };

/** The inverse of {@linkcode encodeOutcomes}. */
export function decodeOutcomes(message: string): OutcomesMessage {
  const at = message.indexOf(" ");
  const outcomes = Array.from(message.slice(at + 1), (letter) => OUTCOMES[letter] as StoreOutcome);
  return { id: Number(message.slice(0, at)), outcomes };
}
