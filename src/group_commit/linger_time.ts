const MIN_MS = 1;
const MAX_MS = 3;

/** So many batches in a row have to be complete before the next one lingers a millisecond longer. */
const BATCHES_PER_MS = 4;

/**
 * How long a batch lingers after one of several plants came back (Kafka's `linger.ms`). Clients that just got a response
 * often send again in less, and one commit for all of them costs about half of what two do. On a busy machine they need
 * more time: where one batch after the other is complete, the next ones linger longer. Clients that do not wait for each
 * other complete few batches in a row, and get no more latency from it.
 */
export class LingerTime {
  #completeInARow = 0;

  /** In whole milliseconds: timers have no finer ones. */
  get ms(): number {
    return Math.min(MIN_MS + Math.floor(this.#completeInARow / BATCHES_PER_MS), MAX_MS);
  }

  /** Learns from a batch that lingered, complete or until the time was over. */
  record(isComplete: boolean): void {
    this.#completeInARow = isComplete ? this.#completeInARow + 1 : 0;
  }
}
