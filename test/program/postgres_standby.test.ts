import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import {
  CONNECT_TIMEOUT,
  type PostgresCluster,
  skipsCluster,
  startCluster,
} from "../support/postgres.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("A standby that has not applied what was acknowledged", () => {
  let primary: PostgresCluster;
  let standby: PostgresCluster;
  beforeAll(async () => {
    primary = await startCluster();
    standby = await startCluster({ primary });
    await primary.waitForStandby();
    const database = primary.url("postgres");
    expect(await runCommand(["migrate"], { DATABASE_URL: database })).toMatchObject({
      exitCode: 0,
    });
    while (
      (await standby.run("SELECT to_regclass('plant_store_migrations') AS found"))[0]?.["found"] ===
      null
    ) {
      await Bun.sleep(5);
    }
    await standby.run("SELECT pg_wal_replay_pause()");
    await primary.run("INSERT INTO plants VALUES (1, 'Fern')");
    expect(await runCommand(["token", "create", "new"], { DATABASE_URL: database })).toMatchObject({
      exitCode: 0,
    });
  });
  afterAll(async () => {
    await standby[Symbol.asyncDispose]();
    await primary[Symbol.asyncDispose]();
  });

  const at = (ports: readonly number[], rest = "") =>
    `postgres://postgres@${ports.map((port) => `127.0.0.1:${port}`).join(",")}/postgres?${CONNECT_TIMEOUT}${rest}`;
  const plantStore = (args: readonly string[], url: string) =>
    runCommand(args, { DATABASE_URL: url });

  test("is not read from where the primary can be used, wherever it stands in the URL", async () => {
    for (const url of [at([standby.port, primary.port]), at([primary.port, standby.port])]) {
      const fern = '{"id":1,"name":"Fern"}\n';
      expect(await plantStore(["export"], url)).toEqual({ exitCode: 0, stdout: fern, stderr: "" });
      const tokens = await plantStore(["token", "list"], url);
      expect(tokens).toEqual({
        exitCode: 0,
        stdout: expect.stringContaining("\nnew "),
        stderr: "",
      });
      const upToDate = {
        exitCode: 0,
        stdout: "",
        stderr: "Nothing to do: the schema is up to date\n",
      };
      expect(await plantStore(["migrate", "--dry-run"], url)).toEqual(upToDate);
    }
  });

  test("is read from where nothing else is there, and one line says what that means", async () => {
    const url = at([1, standby.port]);
    const warning = `127.0.0.1:${standby.port} is a standby, and no other server is available: it may lack the newest plants and tokens\n`;
    expect(await plantStore(["export"], url)).toEqual({ exitCode: 0, stdout: "", stderr: warning });
    const tokens = await plantStore(["token", "list", "--json"], url);
    expect(tokens).toEqual({ exitCode: 0, stdout: "[]\n", stderr: warning });
    const dry = await plantStore(["migrate", "--dry-run"], url);
    expect(dry).toMatchObject({
      exitCode: 0,
      stderr: `${warning}Nothing to do: the schema is up to date\n`,
    });
  });

  test("is not read from where target_session_attrs asks for a primary, and never written to", async () => {
    const readOnly = `Cannot open database "postgres": 127.0.0.1:${standby.port}: it is read-only (25006)\n`;
    const refused = { exitCode: 1, stdout: "", stderr: readOnly };
    for (const target of ["read-write", "primary"]) {
      for (const args of [["export"], ["token", "list"], ["migrate", "--dry-run"]]) {
        const url = at([standby.port], `&target_session_attrs=${target}`);
        expect(await plantStore(args, url)).toEqual(refused);
      }
    }
    expect(await plantStore(["token", "create", "newer"], at([standby.port]))).toEqual(refused);
  });
});
