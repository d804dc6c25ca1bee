import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";

import { corruptionMarker } from "../../src/database/sqlite/markers.ts";
import { filesIn } from "../support/database_fixture.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { skipsShim } from "../support/shim.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const checkStart = (database: string, environment: Record<string, string> = {}) =>
  runCommand(["serve", "--check", "--database", database], { PORT: "0", ...environment });

test("serve --check says what a start would do to the database, and does not do it", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");

  const creates = {
    exitCode: 0,
    stdout: `A start creates the database "${path}"\n`,
    stderr: "",
  };
  expect(await checkStart(path)).toEqual(creates);
  expect(readdirSync(directory.path)).toEqual([]);
  await Bun.write(path, "");
  expect(await checkStart(path)).toEqual(creates);

  await runCommand(["migrate", "--database", path], {});
  expect(await checkStart(path, { NODE_ENV: "production" })).toEqual({
    exitCode: 0,
    stdout: `The database "${path}" is up to date\n`,
    stderr: "",
  });

  // As an older version has left it.
  {
    using database = new Database(path);
    database.run(FORGET_LAST_MIGRATION);
  }
  const before = await Bun.file(path).bytes();
  expect(await checkStart(path)).toEqual({
    exitCode: 0,
    stdout: expect.stringMatching(/^A start migrates the database "[^"]+": \d{4}_\w+\n$/),
    stderr: "",
  });
  expect(await Bun.file(path).bytes()).toEqual(before);
});

test("serve --check only warns of a port in use, which the running server may have", async () => {
  using directory = emptyDirectory();
  await using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  const ended = await checkStart(directory.at("plants.db"), { PORT: String(server.port) });
  expect(ended).toMatchObject({
    exitCode: 0,
    stderr: `Cannot listen on 127.0.0.1:${server.port}: the port is in use; choose another with --port, unless the running server has this port\n`,
  });
});

test.each<[url: string, reason: string]>([
  ["http://127.0.0.1:9/jwks?key=secret", "nothing listens there (ECONNREFUSED)"],
  ["PROVIDER/missing", "The JWKS URL returned 404"],
  ["PROVIDER/jwks", ""],
])("serve --check asks an identity provider at %s, and only warns", async (url, reason) => {
  using directory = emptyDirectory();
  await using provider = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    routes: { "/jwks": Response.json({ keys: [] }) },
    fetch: () => new Response(null, { status: 404 }),
  });
  const jwksUrl = url.replace("PROVIDER", provider.url.origin);
  const ended = await checkStart(directory.at("plants.db"), {
    AUTH_JWKS_URL: jwksUrl,
    AUTH_ISSUER: "https://id.example.org/",
    AUTH_AUDIENCE: "plant-store",
  });
  const [shown] = jwksUrl.split("?");
  expect(ended).toMatchObject({
    exitCode: 0,
    stderr: reason && `Cannot fetch the identity provider's keys from ${shown}: ${reason}\n`,
  });
});

/** Makes every file system look like one of this type: statfs(2). */
const STATFS = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/vfs.h>
int statfs(const char *path, struct statfs *result) {
  int (*real)(const char *, struct statfs *) = (int (*)(const char *, struct statfs *))dlsym(RTLD_NEXT, "statfs");
  int failed = real(path, result);
  result->f_type = strtoul(getenv("FILE_SYSTEM"), NULL, 16);
  return failed;
}
`;

test.skipIf(skipsShim())(
  "a server refuses a database on SMB, NFS or 9p in production, and warns elsewhere",
  async () => {
    using directory = emptyDirectory();
    await Bun.write(directory.at("statfs.c"), STATFS);
    await Bun.$`cc -shared -fPIC -o ${directory.at("statfs.so")} ${directory.at("statfs.c")} -ldl`;
    const path = directory.at("plants.db");
    await runCommand(["migrate", "--database", path], {});
    const fault =
      "it is on SMB, where SQLite's locks may fail and the database become corrupt: use a local disk, or PostgreSQL";
    const run = (args: readonly string[], env: Record<string, string>) =>
      runToEnd({
        args: [...args, "--database", path],
        env: { FILE_SYSTEM: "ff534d42", LD_PRELOAD: directory.at("statfs.so"), ...env },
      });

    const refused = { stdout: "", stderr: `Cannot open database "${path}": ${fault}\n` };
    const production = { NODE_ENV: "production", PORT: "0" };
    expect(await run(["serve", "--check"], production)).toEqual({ exitCode: 2, ...refused });
    for (const [type, name] of [
      ["fe534d42", "SMB"],
      ["6969", "NFS"],
      ["1021997", "9p"],
    ] as const)
      expect(await run(["serve", "--check"], { ...production, FILE_SYSTEM: type })).toEqual({
        exitCode: 2,
        stdout: "",
        stderr: `Cannot open database "${path}": ${fault.replace("SMB", name)}\n`,
      });
    const started = await run(["serve"], { ...production, LOG_FORMAT: "pretty" });
    expect(started).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(fault) });
    expect(await run(["serve", "--check"], { PORT: "0" })).toMatchObject({
      exitCode: 0,
      stderr: `The database "${path}" may be lost: ${fault}\n`,
    });

    await using server = await startServer({
      args: ["--database", path, "--port", "0"],
      env: { FILE_SYSTEM: "ff534d42", LD_PRELOAD: directory.at("statfs.so") },
    });
    expect(server.stderr.text()).toContain(`may be lost: ${fault}`);
  },
);

test.each<[what: string, environment: Record<string, string>, refusal: RegExp]>([
  [
    "a missing database in production",
    { NODE_ENV: "production" },
    /^Cannot open database .*: there is no such file/,
  ],
  ["a setting", { PORT: "abc" }, /^Cannot use PORT=abc: expected/],
  ["an address", { HOST: "192.0.2.256" }, /^Cannot listen on 192.0.2.256:3000: this machine/],
  ["a name", { HOST: "nobody.invalid" }, /^Cannot listen on nobody.invalid:3000: this machine/],
  [
    "a file of tokens",
    { AUTH_TOKENS_FILE: "missing" },
    /^Cannot use AUTH_TOKENS_FILE: no such file/,
  ],
  [
    "a certificate",
    { TLS_CERT_FILE: "missing.pem", TLS_KEY_FILE: "missing.pem" },
    /^Cannot use TLS_CERT_FILE: no such file/,
  ],
])("serve --check is exit code 2, and one line, for %s", async (_what, environment, refusal) => {
  using directory = emptyDirectory();
  const database = `file:${directory.at("plants.db")}`;
  const ended = await runCommand(["serve", "--check"], { DATABASE_URL: database, ...environment });

  expect(ended).toEqual({ exitCode: 2, stdout: "", stderr: expect.stringMatching(refusal) });
  expect(ended.stderr.trimEnd()).not.toContain("\n");
  expect(readdirSync(directory.path)).toEqual([]);
});

test.each<[what: string, make: (path: string) => unknown, refusal: string]>([
  [
    "created in no directory",
    (path) => rmSync(dirname(path), { recursive: true }),
    "there is no such directory",
  ],
  [
    "created beside the WAL of another one",
    (path) => Bun.write(`${path}-wal`, "plants"),
    '"plants.db-wal" holds plants of a file that is not there',
  ],
  [
    "created where other users can replace it",
    (path) => chmodSync(dirname(path), 0o777),
    "other users can write to its directory",
  ],
  [
    "created in the middle of a restore",
    (path) => mkdirSync(`${path}-replacing`),
    'a restore is running, or was interrupted, and its old files are in "plants.db-replacing": wait for it, or ',
  ],
  [
    "created in an empty file in the middle of a restore",
    (path) => {
      mkdirSync(`${path}-replacing`);
      return Bun.write(path, "");
    },
    "a restore is running, or was interrupted",
  ],
  ["migrated with a marker of corruption", markOlder, "is corrupt"],
])("serve --check refuses a database that cannot be %s", async (_what, make, refusal) => {
  using directory = emptyDirectory();
  const path = directory.at("here/plants.db");
  mkdirSync(dirname(path), { mode: 0o700 });
  await make(path);
  const files = () => (existsSync(dirname(path)) ? filesIn(dirname(path)) : []);
  const before = files();

  const { exitCode, stdout, stderr } = await checkStart(path);
  expect([exitCode, stdout]).toEqual([2, ""]);
  expect(stderr).toStartWith(`Cannot open database "${path}": `);
  expect(stderr).toContain(refusal);
  expect(files()).toEqual(before);
});

/** Makes a database as an older version has left it, and marks it as corrupt. */
async function markOlder(path: string): Promise<void> {
  await runCommand(["migrate", "--database", path], {});
  using database = new Database(path);
  database.run(FORGET_LAST_MIGRATION);
  corruptionMarker(path).write("a page is damaged");
}

const FORGET_LAST_MIGRATION =
  "DELETE FROM __drizzle_migrations WHERE id = (SELECT max(id) FROM __drizzle_migrations)";

test("serve --check names variables that nothing reads", async () => {
  using directory = emptyDirectory();
  const ended = await checkStart(directory.at("plants.db"), {
    DATABASE_URL: "postgres://plants:secret@localhost/plants",
    DATABASE_URL_FILE: "missing",
    DATABSE_URL: "x",
    AUTH_TOKEN: "secret",
  });
  expect(ended.stderr).toBe(
    "Ignored DATABASE_URL: --database overrides it\nIgnored DATABASE_URL_FILE: --database overrides it\n" +
      "Ignored DATABSE_URL: did you mean DATABASE_URL?\nIgnored AUTH_TOKEN: did you mean AUTH_TOKENS?\n",
  );
});

test("serve --check ends at a signal, while it waits for a file that is a pipe", async () => {
  using directory = emptyDirectory();
  const pipe = directory.at("tokens");
  Bun.spawnSync(["mkfifo", pipe]);
  const stop = new AbortController();
  const environment = { AUTH_TOKENS_FILE: pipe };
  const ended = runCommand(["serve", "--check"], environment, { stop: stop.signal });

  // Opens once the command reads it.
  await using _ = await open(pipe, "w");
  stop.abort();

  expect(await ended).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: "Stopped: the check is incomplete\n",
  });
});
