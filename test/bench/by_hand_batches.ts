import type { Outcome } from "./by_hand_http.ts";
import type { HandPlant } from "./by_hand_plant.ts";

const worker = new Worker(new URL("./by_hand_thread.ts", import.meta.url));
let plants: HandPlant[] = [];
let resolves: ((outcome: Outcome) => void)[] = [];
let inFlight: typeof resolves = [];
let busy = false;

worker.addEventListener("message", ({ data }: MessageEvent<string>) => {
  const waiting = inFlight;
  const outcomes = JSON.parse(data) as Outcome[];
  busy = false;
  if (plants.length > 0) post();
  for (let i = 0; i < outcomes.length; i++) waiting[i]?.(outcomes[i] ?? "conflict");
});

/** Stores a plant by SQLite in a Worker: one batch is in flight while the next one gathers. */
export function addInWorker(plant: HandPlant): Promise<Outcome> {
  return new Promise((resolve) => {
    resolves.push(resolve);
    if (plants.push(plant) === 1 && !busy) setImmediate(post);
  });
}

/**
 * JSON costs a tenth of the CPU a plant less than a structured clone, and a second batch in flight
 * saves nothing.
 */
function post(): void {
  busy = true;
  inFlight = resolves;
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a Worker has no origin
  worker.postMessage(JSON.stringify(plants));
  plants = [];
  resolves = [];
}
