import { expect, setDefaultTimeout, test } from "bun:test";

import { getBytes } from "../support/load.ts";
import { skipsProc, TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { BY_HAND, CEILING } from "./contenders.ts";
import { requireFsync, startContender } from "./servers.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const measuring = test.concurrent.skipIf(skipsProc());

test.concurrent.skipIf(skipsShim())(
  "requireFsync() refuses a program that answers 200 without an fsync",
  async () => {
    await Promise.all([
      expect(requireFsync(CEILING)).rejects.toThrow(
        "Bun.serve, nothing stored answers 200 without an fsync",
      ),
      requireFsync(BY_HAND.lean),
      requireFsync(BY_HAND.leanWorker),
    ]);
  },
);

measuring("startContender() measures a load, and finds every plant that got a 200", async () => {
  await using server = await startContender(BY_HAND.lean);
  const cost = await server.load({ connections: 4, seconds: 1 });
  expect(cost.responses).toBeGreaterThan(0);
  expect(cost.cpuMicros).toBeGreaterThan(0);
  expect(cost.peakMB).toBeGreaterThan(1);
});

measuring("startContender() fails if fewer plants are stored than got a 200", async () => {
  const run = async () => {
    await using server = await startContender({ ...CEILING, stores: true, count: async () => 0 });
    await server.load({ connections: 4, seconds: 1 });
  };
  await expect(run()).rejects.toThrow(
    /^Bun\.serve, nothing stored answered 200 to \d+ plants, and stored 0$/,
  );
});

measuring("load() fails on a response of another status", async () => {
  const run = async () => {
    await using server = await startContender(BY_HAND.lean);
    await server.load({ connections: 4, seconds: 1, request: getBytes("/plants") });
  };
  await expect(run()).rejects.toThrow(
    /^(?:Expected status 200 for every request|The load on \S+ ended early)/,
  );
});
