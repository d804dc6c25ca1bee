import { beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { post } from "../support/client.ts";
import { fern, jsonOf, returned, TEXT } from "../support/plants.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import {
  BY_HAND,
  CREDENTIALS,
  ELYSIA_DRIZZLE,
  HONO,
  installPeers,
  LEAN_ELYSIA,
} from "./contenders.ts";
import { MONSTERA } from "./prefilled.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

beforeAll(installPeers);

for (const contender of [BY_HAND.lean, BY_HAND.leanWorker, LEAN_ELYSIA, ELYSIA_DRIZZLE, HONO])
  test.concurrent(
    `${contender.name}: a plant is stored and returned, as is its retry`,
    async () => {
      await using server = await startServer({ program: contender.program, env: CREDENTIALS });
      for (const plant of [MONSTERA, MONSTERA, fern({ id: 2 }), fern({ id: 2 })]) {
        const response = await post(server.url, plant);
        expect(response.status).toBe(200);
        expect(await response.json()).toEqual(returned(plant));
      }

      const rival = await post(server.url, fern({ id: 2, [TEXT]: "rival" }));
      expect(rival.status).toBe(409);
    },
  );

test.concurrent("the loop by hand exports what it has imported", async () => {
  using directory = emptyDirectory();
  const lines = [MONSTERA, fern({ id: 2 })].map((plant) => `${jsonOf(plant)}\n`).join("");
  writeFileSync(directory.at("plants.ndjson"), lines);
  const program = [process.execPath, join(import.meta.dir, "by_hand_bulk.ts")];
  const cwd = directory.path;

  await runToEnd({ program, args: ["import", "plants.ndjson"], cwd });
  expect((await runToEnd({ program, args: ["export"], cwd })).stdout).toBe(lines);
});
