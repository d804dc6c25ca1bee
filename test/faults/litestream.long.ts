import { expect, setDefaultTimeout, test } from "bun:test";
import { writeFileSync } from "node:fs";

import { post, TOKEN } from "../support/client.ts";
import { skipped } from "../support/missing.ts";
import { fern, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  runToEnd,
  start,
  startServer,
} from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const LITESTREAM = Bun.which("litestream");

const skipsLitestream =
  LITESTREAM === null &&
  skipped(
    "Litestream beside a server: go install github.com/benbjohnson/litestream/cmd/litestream@v0.5.18",
  );

/** How long the replica may take to have a plant, in milliseconds. */
const LAG_MS = 30_000;

test.skipIf(skipsLitestream)(
  "Litestream has every plant seconds later, even if the server is killed, and a restore names it while it runs",
  async () => {
    using directory = emptyDirectory();
    const { path: cwd, at } = directory;
    const options = { cwd, env: { AUTH_TOKENS: TOKEN } };
    const call = (...args: string[]) => runToEnd({ cwd, args });
    const litestream = (...args: string[]) => [String(LITESTREAM), ...args];
    const config = at("litestream.yml");
    const replicas = `[{ url: "file://${at("replica")}" }]`;
    writeFileSync(config, `dbs:\n  - path: ${at("plants.db")}\n    replicas: ${replicas}\n`);
    let stored = 0;

    async function store(url: string): Promise<void> {
      const ids = Array.from({ length: 200 }, () => stored++);
      const responses = ids.map((id) => post(url, fern({ id, [TEXT]: "x".repeat(1_000) })));
      expect((await Promise.all(responses)).every(({ ok }) => ok)).toBe(true);
    }

    const args = litestream("replicate", "-config", config);
    // The unit of the guide stops it with the server, and starts it after the server.
    for (const end of ["SIGKILL", "SIGTERM"] as const) {
      await using server = await startServer(options);
      await using replication = start({ cwd, program: args });
      await store(server.url);
      await untilReplicated(stored);
      server.child.kill(end);
      await server.child.exited;

      const refused = await call("restore", "restored.db");
      expect(refused.stderr).toBe(
        `Cannot replace database "plants.db": a process has it open (lslocks names it): stop it, and try again\n`,
      );
      replication.child.kill("SIGTERM");
      await replication.child.exited;
    }

    expect(await call("restore", "restored.db")).toMatchObject({ exitCode: 0 });
    expect(JSON.parse((await call("check", "--json")).stdout)).toMatchObject({ plants: stored });

    /** Restores the replica until it has so many plants. */
    async function untilReplicated(plants: number): Promise<void> {
      const deadline = performance.now() + LAG_MS;
      let has = 0;

      while (has !== plants) {
        expect(performance.now(), `${has} of ${plants} plants`).toBeLessThan(deadline);
        for (const suffix of ["", "-wal", "-shm"])
          await Bun.file(at(`restored.db${suffix}`))
            .delete()
            .catch(() => {});
        const restore = ["restore", "-config", config, "-o", at("restored.db"), at("plants.db")];
        await runToEnd({ cwd, program: litestream(...restore) });
        const { stdout } = await call("check", "--json", "--database", "restored.db");
        has = stdout === "" ? 0 : (JSON.parse(stdout) as { plants: number }).plants;
      }
      for (const suffix of ["-wal", "-shm"])
        await Bun.file(at(`restored.db${suffix}`))
          .delete()
          .catch(() => {});
    }
  },
);
