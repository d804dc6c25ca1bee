import { type Batch, type PendingAdd, takeBatch } from "./batch.ts";
import { PlantStoreError } from "../errors.ts";

/** How long after a try the next one begins, in milliseconds: the store waits for locks itself. */
const RETRY_MS = 100;

/**
 * Adds whose plants other transactions hold. They are tried again until their deadlines, one batch at a time and apart
 * from all others, whom they would keep waiting.
 */
export class LockedAdds {
  readonly #retry: (batch: Batch) => Promise<void>;
  /** In the order of their deadlines. */
  #adds: PendingAdd[] = [];
  /** Begins the next try. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isTrying = false;

  /** @param retry Commits a batch; it pushes again what is still locked. */
  constructor(retry: (batch: Batch) => Promise<void>) {
    this.#retry = retry;
  }

  /** Those that wait for their next try, in the order of their deadlines. */
  get waiting(): Batch {
    return this.#adds;
  }

  push(adds: Batch): void {
    this.#adds = [...this.#adds, ...adds].toSorted((one, other) => one.deadline - other.deadline);
    this.#schedule();
  }

  /** Rejects those that are past their deadline, and takes them out. */
  withdraw(now: number): Batch {
    const withdrawn = this.#adds.filter(({ deadline }) => deadline <= now);
    this.#adds.splice(0, withdrawn.length);
    for (const { reject } of withdrawn) reject(lockedError());
    if (this.#adds.length === 0) this.#stop();
    return withdrawn;
  }

  #schedule(): void {
    if (this.#adds.length > 0 && !this.#isTrying) this.#timer ??= setTimeout(() => this.#try(), RETRY_MS);
  }

  /** A timer without a plant would only keep the process alive. */
  #stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #try(): Promise<void> {
    this.#timer = undefined;
    this.#isTrying = true;
    await this.#retry(takeBatch(this.#adds));
    this.#isTrying = false;
    this.#schedule();
  }
}

/** An earlier try may have lost a connection and its outcome with it, so this one is unknown, too. */
function lockedError(): PlantStoreError {
  const message = "storage did not finish in time; the plant may or may not be stored, send it again";
  return new PlantStoreError("storage_unavailable", message, {
    cause: new Error("another transaction holds a lock on the plant"),
  });
}
