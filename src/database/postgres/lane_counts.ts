/** What happened on lanes, counted. */
export interface LaneCounts {
  /** Connections opened in the place of one that was lost or given up. */
  reconnections: number;
  /** Pieces of work that were begun again. */
  retries: number;
  /** Pieces of work that were done. */
  done: number;
  /** How long the pieces that were done took together, in milliseconds. */
  durationMs: number;
}
