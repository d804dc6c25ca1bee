import { setDefaultTimeout, test } from "bun:test";

import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { startOnDisk } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("a server that is killed under load loses no plant", async () => {
  await using server = await startOnDisk();
  const load = server.load();
  await load.answers(100);

  server.child.kill("SIGKILL");
  await load.end;

  server.requireIntact();
});
