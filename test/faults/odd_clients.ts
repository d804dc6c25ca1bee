import type { NewPlant } from "../../src/plant/plant.ts";

/**
 * Clients that each send one request again and again; what may come of it, beside a 503, is in
 * `expected`.
 */
export type Kind = readonly [
  name: string,
  clients: number,
  pauseMs: number,
  expected: RegExp,
  once: () => Promise<string>,
];

/** What clients do, each time on a connection of its own. Resolves to what came of it. */
export interface Sending {
  readonly ask: (bytes: string | Uint8Array) => Promise<string>;
  /** Sends a plant, tells the ledger, and says what came of it. */
  readonly store: (send: (plant: NewPlant) => Promise<string>) => Promise<string>;
}

/** What may come of a good plant. */
export const STORED = /^(?:200|409\/4091)$/;
