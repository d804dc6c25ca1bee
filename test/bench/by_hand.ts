/** The program by hand, with SQLite on the main thread: {@linkcode serveByHand} with group commit. */
import { type Outcome, serveByHand } from "./by_hand_http.ts";
import type { HandPlant } from "./by_hand_plant.ts";
import { openByHand } from "./peers/sqlite.ts";

const addAll = openByHand();
let plants: HandPlant[] = [];
let resolves: ((outcome: Outcome) => void)[] = [];

serveByHand(
  (plant) =>
    new Promise((resolve) => {
      resolves.push(resolve);
      // Everything that is already in the sockets joins.
      if (plants.push(plant) === 1) setImmediate(commit);
    }),
);

function commit(): void {
  const waiting = resolves;
  const batch = plants;
  plants = [];
  resolves = [];
  const outcomes = addAll(batch);
  for (let i = 0; i < outcomes.length; i++) waiting[i]?.(outcomes[i] ?? "conflict");
}
