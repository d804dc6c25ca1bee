// `Bun.serve` that checks the token, reads the JSON, checks the shape and responds, and stores
// nothing.
import { serveByHand } from "../by_hand_http.ts";

serveByHand(() => "stored");
