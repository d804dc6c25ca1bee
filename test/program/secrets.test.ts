import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, constants, readdirSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, exitCodeOf, ROOT, runToEnd, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** For how long each token of a database is accepted, in milliseconds; `null` for ever. */
async function lifetimes(cwd: string): Promise<(number | null)[]> {
  const { stdout } = await runToEnd({ cwd, args: ["token", "list", "--json"] });
  const tokens = JSON.parse(stdout) as { created: string; expires: string | null }[];
  return tokens.map(({ created, expires }) => (expires === null ? null : Date.parse(expires) - Date.parse(created)));
}

test.concurrent(
  "the first token expires after 24 hours where it is not printed on a terminal, and the text says so",
  async () => {
    using directory = emptyDirectory();
    await using server = await startServer({ cwd: directory.path });
    await server.stderr.until(/It may be in a log now, so it expires in 24 hours\./);
    expect(await lifetimes(directory.path)).toEqual([86_400_000]);
  },
);

test("the first token does not expire where it is printed on a terminal", async () => {
  using directory = emptyDirectory();
  const stop = new AbortController();
  let printed = "";
  const stderr = (text: string) => {
    if (!text.includes("curl")) return;
    printed = text;
    stop.abort();
  };
  const environment = { PORT: "0", DATABASE_URL: join(directory.path, "plants.db") };
  const options = { isTerminal: true, stop: stop.signal, stderr };
  expect(await runCommand([], environment, options)).toMatchObject({ exitCode: 0 });
  expect(printed).toContain("Created token");
  expect(printed).not.toContain("expires");
  expect(await lifetimes(directory.path)).toEqual([null]);
});

test.concurrent("AUTH_TOKENS_FILE names a file of more tokens, one a line or comma-separated", async () => {
  using directory = emptyDirectory();
  const file = join(directory.path, "tokens");
  writeFileSync(file, "one-token-0123456789\r\n\nsecond-token-0123456789,third-token-0123456789\n");
  await using server = await startServer({
    cwd: directory.path,
    env: { AUTH_TOKENS: TOKEN, AUTH_TOKENS_FILE: file },
  });
  const statuses = await Promise.all(
    [TOKEN, "one-token-0123456789", "second-token-0123456789", "third-token-0123456789", "other-token-0123456789"].map(
      async (token) => (await post(server.url, undefined, { token })).status,
    ),
  );
  expect(statuses).toEqual([200, 200, 200, 200, 401]);
});

test.concurrent.each([
  ["AUTH_TOKENS_FILE", "serve", 0],
  ["TLS_CERT_FILE", "serve", 0],
  ["TLS_KEY_FILE", "serve", 0],
  ["DATABASE_URL_FILE", "serve", 1],
  ["DATABASE_URL_FILE", "export", 1],
])("a signal ends a program that waits for %s, a pipe without a writer: %s", async (setting, command, exitCode) => {
  using directory = emptyDirectory();
  const file = join(directory.path, "pipe");
  expect(Bun.spawnSync(["mkfifo", file]).exitCode).toBe(0);
  const [cert, key] = ["crt", "key"].map((end) => join(ROOT, `test/support/tls/localhost.${end}`));
  const tls = setting.startsWith("TLS") && { TLS_CERT_FILE: cert ?? "", TLS_KEY_FILE: key ?? "" };
  const env = { PORT: "0", ...tls, [setting]: file };
  await using program = start({ cwd: directory.path, args: [command], env });
  // It is there once the program holds the pipe open for reading.
  const isOpen = () =>
    open(file, constants.O_WRONLY | constants.O_NONBLOCK)
      .then((pipe) => pipe.close())
      .catch(() => false);
  while ((await isOpen()) === false) await Bun.sleep(5);
  program.child.kill("SIGTERM");
  expect(await exitCodeOf(program.child)).toBe(exitCode);
});

test.concurrent("an AUTH_TOKENS_FILE that cannot be used stops the start with one line and exit code 2", async () => {
  using directory = emptyDirectory();
  writeFileSync(join(directory.path, "short"), "one-token-0123456789\nshort\n");
  writeFileSync(join(directory.path, "huge"), "known-token-0123456789\n".repeat(50_000));
  for (const [file, says] of [
    ["missing", 'Cannot use AUTH_TOKENS_FILE "missing": no such file or directory'],
    ["huge", 'Cannot use AUTH_TOKENS_FILE "huge": expected at most 1048576 bytes'],
    ["short", "Cannot use AUTH_TOKENS_FILE: token 2 has fewer than 16 characters"],
  ] as const) {
    const run = await runToEnd({ cwd: directory.path, args: ["--port", "0"], env: { AUTH_TOKENS_FILE: file } });
    expect(run).toEqual({ exitCode: 2, stdout: "", stderr: `${says}\n` });
  }
  expect(readdirSync(directory.path).toSorted()).toEqual(["huge", "short"]);
});

test.concurrent(
  "DATABASE_URL_FILE names a file with the DATABASE_URL, for every command; --database replaces it",
  async () => {
    using directory = emptyDirectory();
    writeFileSync(join(directory.path, "url"), "file:greenhouse.db\r\n\n");
    const env = { DATABASE_URL_FILE: "url" };
    {
      await using server = await startServer({ cwd: directory.path, env: { ...env, AUTH_TOKENS: TOKEN } });
      expect((await post(server.url)).status).toBe(200);
      server.child.kill("SIGTERM");
      expect(await server.child.exited).toBe(0);
      const [, configuration = ""] = /"Configuration in force",(.*)/.exec(server.stderr.text()) ?? [];
      expect(configuration).toContain('"database":{"adapter":"sqlite","path":"greenhouse.db"},"databaseUrlFile":"url"');
    }
    const exported = await runToEnd({ cwd: directory.path, args: ["export"], env });
    expect(exported).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("Fern") });
    const created = await runToEnd({ cwd: directory.path, args: ["token", "create", "one"], env });
    expect(created).toMatchObject({ exitCode: 0 });
    const replaced = await runToEnd({
      cwd: directory.path,
      args: ["token", "list", "--database", "file:greenhouse.db"],
      env: { DATABASE_URL_FILE: "missing", DATABASE_URL: "file:other.db" },
    });
    expect(replaced).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("one") });
    expect(readdirSync(directory.path).toSorted()).toEqual(["greenhouse.db", "url"]);
  },
);

test.concurrent(
  "a DATABASE_URL_FILE that cannot be used stops a command with one line and exit code 2, and is not quoted",
  async () => {
    using directory = emptyDirectory();
    const at = (name: string) => join(directory.path, name);
    writeFileSync(at("empty"), "\n");
    writeFileSync(at("password"), "greenhouse-password\n");
    writeFileSync(at("lines"), "postgres://me:greenhouse-password@localhost/plants\nfile:plants.db\n");
    writeFileSync(at("network"), "postgres://me:greenhouse-password@db.example.org/plants\n");
    const refusals: [path: string, reason: string][] = [
      [at("missing"), "no such file or directory"],
      [directory.path, "illegal operation on a directory"],
      [at("empty"), "it is empty"],
      ["/dev/zero", "expected at most 1048576 bytes"],
      [at("password"), "expected one line, file:PATH or postgres://…"],
      [at("lines"), "expected one line, file:PATH or postgres://…"],
    ];
    for (const args of [["--port", "0"], ["export"]]) {
      for (const [path, reason] of refusals) {
        const stderr = `Cannot use DATABASE_URL_FILE "${path}": ${reason}\n`;
        expect(await runCommand(args, { DATABASE_URL_FILE: path })).toEqual({ exitCode: 2, stdout: "", stderr });
      }
      const env = { DATABASE_URL_FILE: at("network") };
      const { exitCode, stderr } = await runCommand(args, env);
      expect(exitCode).toBe(2);
      expect(stderr).toStartWith('Cannot use DATABASE_URL_FILE "postgres://…": a host on a network needs sslmode');
      expect(await runCommand(args, { ...env, DATABASE_URL: "file:plants.db" })).toMatchObject({
        exitCode: 2,
        stderr: "Cannot use both DATABASE_URL and DATABASE_URL_FILE\n",
      });
    }
  },
);

test.concurrent("the log warns of static tokens that are easy to guess, without showing them", async () => {
  const env = { AUTH_TOKENS: `${TOKEN},changemechangeme,${"0123456789abcdef".repeat(2)}` };
  await using server = await startServer({ env });
  const warnings = server.stderr
    .text()
    .split("\n")
    .filter((line) => line.includes("easy to guess"));
  expect(warnings.map((line) => JSON.parse(line))).toMatchObject([
    { level: "WARN", message: "Token is easy to guess", setting: "AUTH_TOKENS", token: 2, bits: 44 },
  ]);
});

test.concurrent(
  "a new database and the files beside it are its owner's only; the mode of one that is there stays",
  async () => {
    using directory = emptyDirectory();
    const program = shell('umask 0 && exec "$@"');
    const modes = () =>
      Object.fromEntries(
        readdirSync(directory.path).map((name) => [
          name,
          (statSync(join(directory.path, name)).mode & 0o777).toString(8),
        ]),
      );
    {
      await using server = await startServer({ program, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
      expect((await post(server.url)).status).toBe(200);
      expect(modes()).toEqual({ "plants.db": "600", "plants.db-shm": "600", "plants.db-wal": "600" });
      server.child.kill("SIGTERM");
      expect(await server.child.exited).toBe(0);
    }
    chmodSync(join(directory.path, "plants.db"), 0o640);
    await using server = await startServer({ cwd: directory.path, env: { AUTH_TOKENS: TOKEN } });
    expect((await post(server.url)).status).toBe(200);
    expect(modes()["plants.db"]).toBe("640");
  },
);
