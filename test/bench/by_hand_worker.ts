/** The program by hand, with SQLite in a Worker: {@linkcode serveByHand} with group commit. */
import { addInWorker } from "./by_hand_batches.ts";
import { serveByHand } from "./by_hand_http.ts";

serveByHand(addInWorker);
