/** The other half of `by_hand_worker.ts`: a batch in, its outcomes out. */
import { openByHand } from "./peers/sqlite.ts";

const addAll = openByHand();

self.addEventListener("message", ({ data }: MessageEvent<string>) => {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a Worker's port has no origin
  self.postMessage(JSON.stringify(addAll(JSON.parse(data))));
});
