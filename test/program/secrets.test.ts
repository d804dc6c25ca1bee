import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";

import { DATABASE_URLS } from "../../src/database/databases.ts";
import { post, TOKEN } from "../support/client.ts";
import { skipsWithout } from "../support/missing.ts";
import { fern, jsonOf } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.concurrent(
  "AUTH_TOKENS_FILE names a file of more tokens, one per line or comma-separated",
  async () => {
    using directory = emptyDirectory();
    const file = directory.at("tokens");
    writeFileSync(
      file,
      "one-token-0123456789\r\n\nsecond-token-0123456789,third-token-0123456789\n",
    );

    const env = { AUTH_TOKENS: `${TOKEN},another-token-0123456789`, AUTH_TOKENS_FILE: file };
    await using server = await startServer({ cwd: directory.path, env });
    const names = ["known", "another", "one", "second", "third", "unknown"];
    const responses = await Promise.all(
      names.map((name) => post(server.url, undefined, { token: `${name}-token-0123456789` })),
    );

    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 401]);
    expect(server.stderr.text()).not.toContain("plant_");
  },
);

test.concurrent.each([
  ["AUTH_TOKENS_FILE", "serve", 0],
  ["DATABASE_URL_FILE", "export", 1],
])(
  "a signal ends a program that waits for %s, a pipe that has not ended: %s",
  async (setting, command, exitCode) => {
    using directory = emptyDirectory();
    const file = directory.at("pipe");
    expect(Bun.spawnSync(["mkfifo", file]).exitCode).toBe(0);

    const env = { PORT: "0", [setting]: file };
    await using program = start({ cwd: directory.path, args: [command], env });

    // A pipe opens when its reader is there.
    await using _ = await open(file, "w");
    expect(await program.stop()).toBe(exitCode);
  },
);

test.concurrent.skipIf(skipsWithout("bash", "bash"))(
  "DATABASE_URL_FILE may be a process substitution of a shell",
  async () => {
    using directory = emptyDirectory();
    const program = shell('DATABASE_URL_FILE=<(echo file:plants.db) exec "$@"', "bash");
    const args = ["import", "-", "--json"];
    const { exitCode, stdout } = await runToEnd({ program, args, cwd: directory.path });
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ database: "plants.db", added: 0 });
  },
);

test.concurrent(
  "DATABASE_URL_FILE names a file with the DATABASE_URL, for every command; --database replaces it",
  async () => {
    using directory = emptyDirectory();
    writeFileSync(directory.at("url"), "file:greenhouse.db\r\n\n");
    const env = { DATABASE_URL_FILE: "url" };

    {
      await using server = await startServer({
        cwd: directory.path,
        env: { ...env, AUTH_TOKENS: TOKEN },
      });
      expect((await post(server.url)).status).toBe(200);
      expect(await server.stop()).toBe(0);
      const [, configuration = ""] =
        /"Configuration in force",(.*)/.exec(server.stderr.text()) ?? [];
      expect(configuration).toContain(
        '"database":{"adapter":"sqlite","path":"greenhouse.db"},"databaseUrlFile":"url"',
      );
    }

    const call = (command: string, env: Record<string, string>) =>
      runToEnd({ cwd: directory.path, args: command.split(" "), env });
    expect(await call("export", env)).toMatchObject({
      exitCode: 0,
      stdout: `${jsonOf(fern())}\n`,
    });
    expect(await call("token create one", env)).toMatchObject({ exitCode: 0 });

    const others = { DATABASE_URL_FILE: "missing", DATABASE_URL: "file:other.db" };
    const listed = await call("token list --database file:greenhouse.db", others);
    expect(listed).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("one") });
    expect(readdirSync(directory.path).toSorted()).toEqual(["greenhouse.db", "url"]);
  },
);

const NOT_SHOWN = ": no such file or directory; its value is not shown, because it may be a secret";

/** What is in a file that a variable names, if there is one, and why it cannot be used. */
const REFUSED: readonly (readonly [
  variable: string,
  file: string,
  text: string | undefined,
  says: string,
])[] = [
  ["AUTH_TOKENS_FILE", TOKEN, undefined, NOT_SHOWN],
  [
    "AUTH_TOKENS_FILE",
    "huge",
    `${TOKEN}\n`.repeat(50_000),
    ' "huge": expected at most 1048576 bytes',
  ],
  ["AUTH_TOKENS_FILE", "short", `${TOKEN}\nshort\n`, ": token 2 has fewer than 16 characters"],
  ["DATABASE_URL_FILE", "postgres://me:sesame@localhost/plants", undefined, NOT_SHOWN],
  ["DATABASE_URL_FILE", "/", undefined, ' "/": illegal operation on a directory'],
  ["DATABASE_URL_FILE", "/dev/zero", undefined, ' "/dev/zero": operation not permitted'],
  ["DATABASE_URL_FILE", "empty", "\n", ' "empty": it is empty'],
  ["DATABASE_URL_FILE", "word", "sesame\n", ` "word": expected one line, ${DATABASE_URLS}`],
  [
    "DATABASE_URL_FILE",
    "lines",
    "postgres://me:sesame@localhost/plants\nfile:plants.db\n",
    ` "lines": expected one line, ${DATABASE_URLS}`,
  ],
];

test.concurrent.each(REFUSED)(
  "%s with the file %s stops a command with one line that does not quote it, and exit code 2",
  async (variable, file, text, says) => {
    using directory = emptyDirectory();
    if (text !== undefined) writeFileSync(directory.at(file), text);
    const files = readdirSync(directory.path);
    const args = [variable === "AUTH_TOKENS_FILE" ? "serve" : "export"];
    const run = await runToEnd({ cwd: directory.path, args, env: { [variable]: file } });

    // Its content is not the variable's value, so no "=" is between them.
    expect(run).toEqual({ exitCode: 2, stdout: "", stderr: `Cannot use ${variable}${says}\n` });
    expect(readdirSync(directory.path)).toEqual(files);
  },
);

test.concurrent(
  "a new database is its owner's only, with the files beside it; one that is there keeps its mode",
  async () => {
    using directory = emptyDirectory();
    const program = shell('umask 0 && exec "$@"');
    const modes = () =>
      readdirSync(directory.path).map((name) => {
        return `${name} ${(statSync(directory.at(name)).mode & 0o777).toString(8)}`;
      });

    {
      await using server = await startServer({
        program,
        cwd: directory.path,
        env: { AUTH_TOKENS: TOKEN },
      });
      expect((await post(server.url)).status).toBe(200);
      expect(modes().toSorted()).toEqual([
        "plants.db 600",
        "plants.db-shm 600",
        "plants.db-wal 600",
      ]);
      expect(await server.stop()).toBe(0);
    }

    chmodSync(directory.at("plants.db"), 0o640);
    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    expect((await post(server.url)).status).toBe(200);
    expect(modes()).toContain("plants.db 640");
  },
);
