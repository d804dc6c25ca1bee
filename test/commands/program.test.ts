import { expect, setDefaultTimeout, test } from "bun:test";

import { SCOPES } from "../../src/auth/authenticate.ts";
import { DATABASE_URLS } from "../../src/database/databases.ts";
import { SETTINGS } from "../../src/settings/settings.ts";
import { COMMANDS } from "../program/compatibility.ts";
import { post } from "../support/client.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** A server that starts by mistake ends at once. */
const call = (...args: string[]) => runCommand(args, {}, { stop: AbortSignal.abort() });

test.each(COMMANDS)(
  "$command --help shows its usage, its flags and an example",
  async ({ command, options }) => {
    const help = await call(...command.split(" "), "--help");
    expect(help).toMatchObject({ exitCode: 0, stderr: "" });
    expect(help.stdout).toStartWith(`Usage: plant-store ${command} [options]`);
    for (const { flags } of options) expect(help.stdout).toContain(`\n  ${flags}`);
    expect(help.stdout).toContain(`\nExample:\n  plant-store ${command}`);
    expect(help.stdout).not.toContain("default: none");
    // Whichever way it is asked for.
    if (!command.includes(" ")) expect(await call("help", command)).toEqual(help);
  },
);

test("token create --help names every scope", async () => {
  const { stdout } = await call("token", "create", "--help");
  for (const scope of SCOPES) expect(stdout).toMatch(new RegExp(`used for:.*${scope}`, "s"));
  expect(stdout).toContain("(default: all)");
});

test("--help lists the commands, and those of token and plant list their own", async () => {
  const listed = async (...args: string[]) => {
    const [, commands = ""] = (await call(...args)).stdout.split("\nCommands:\n");
    return Array.from(commands.matchAll(/^ {2}([a-z]+) .*? {2}/gm), ([, name]) => name);
  };

  const names = new Set(COMMANDS.map(({ command }) => command.split(" ")[0]));
  expect(await listed("--help")).toEqual([...names, "help"]);
  expect(await listed("help")).toEqual(await listed("--help"));
  expect(await listed("token", "--help")).toEqual(["create", "list", "revoke", "delete", "prune"]);
  expect(await listed("plant", "--help")).toEqual(["get", "delete", "count"]);
  expect((await call("--help")).stdout).toContain("\n  token create|list|…  ");
});

test("--help ends with the exit codes and the guide", async () => {
  expect((await call("--help")).stdout).toEndWith(
    "\nExit codes: 0 success, 1 failure, 2 usage error.\nGuide: src/commands/README.md, in the source and in the npm package.\n",
  );
});

test("serve --help lists every variable, in the order of the table", async () => {
  const { stdout } = await call("serve", "--help");
  const told = Array.from(
    stdout.matchAll(/\b[A-Z]+(?:_[A-Z]+)+\b|\b(?:HOST|PORT|DOCS)\b/g),
    ([name]) => name,
  );
  expect(told).toEqual(Object.values(SETTINGS).flatMap(({ variables }) => Object.keys(variables)));
});

test("no line of a --help is wider than a terminal", async () => {
  for (const { command } of [...COMMANDS, { command: "token" }, { command: "" }]) {
    const { stdout } = await call(...command.split(" ").filter(Boolean), "--help");
    expect(stdout.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(stdout).not.toMatch(/[ \t]$/m);
  }
});

/** How a call ends that Commander refuses. */
function misused(complaint: string, command: string) {
  const stderr = `error: ${complaint}\nSee ${["plant-store", command, "--help"].filter(Boolean).join(" ")}\n`;
  return { exitCode: 2, stdout: "", stderr };
}

test.each([
  ["xyzzy", "unknown command 'xyzzy'", ""],
  ["", "unknown command ''", ""],
  ["exprot", "unknown command 'exprot'\n(Did you mean export?)", ""],
  ["Serve --port 1", "unknown command 'Serve'\n(Did you mean serve?)", ""],
  ["token xyzzy", "unknown command 'xyzzy'", "token"],
  ["token lits", "unknown command 'lits'\n(Did you mean list?)", "token"],
  ["-x", "unknown option '-x'", "serve"],
  ["--hepl", "unknown option '--hepl'\n(Did you mean --help?)", "serve"],
  ["--prot=1", "unknown option '--prot=1'\n(Did you mean --port?)", "serve"],
  ["--port", "option '--port <number>' argument missing", "serve"],
  [
    "--port 1 export",
    "too many arguments for 'serve'. Expected 0 arguments but got 1: export.",
    "serve",
  ],
  ["import", "missing required argument 'source'", "import"],
  ["token create", "missing required argument 'name'", "token create"],
  [
    "token create x --expire 90d",
    "unknown option '--expire'\n(Did you mean --expires?)",
    "token create",
  ],
  ["export --json", "unknown option '--json'", "export"],
  ["--json", "unknown option '--json'", "serve"],
  ["--a\u001b[31m", "unknown option '--a\\u{1b}[31m'", "serve"],
])(
  "%j is a usage error, and names the help that has the answer",
  async (words, complaint, command) => {
    expect(await call(...words.split(" "))).toEqual(misused(complaint, command));
    expect((await call(...command.split(" ").filter(Boolean), "--help")).exitCode).toBe(0);
  },
);

const wrongCalls: [string, string][] = [
  ["export --format xml", "Cannot use --format xml: expected ndjson or csv"],
  [
    "token create x --scope write\u001b[31m",
    `Cannot use --scope "write\\u{1b}[31m": expected ${SCOPES.join(", ").replace(/, (\w+)$/, " or $1")}`,
  ],
  [
    "token create a\u001b[31mb\u009b\u202e",
    'Cannot use token name "a\\u{1b}[31mb\\u{9b}\\u{202e}": expected 1 to 64 letters, digits, ".", "_", "@" or "-"',
  ],
  [
    "token create a --expires 5\u001b[31my\u009b",
    'Cannot use --expires "5\\u{1b}[31my\\u{9b}": expected a number and its unit, such as 90d: m, h or d for minutes, hours or days; at most 36500d',
  ],
  [
    "openapi --server plants.example.org",
    "Cannot use --server plants.example.org: expected an http or https URL without a password, a query and a fragment",
  ],
  ["--port 1\u0007", "Cannot use --port: remove the invisible characters in its value"],
  ["--port http", "Cannot use --port http: expected an integer from 0 to 65535"],
  ["--port 99999", "Cannot use --port 99999: expected 0 to 65535"],
  ["--port ", 'Cannot use --port "": expected a value; for the default, omit the flag'],
  ["--host ", 'Cannot use --host "": expected a value; for the default, omit the flag'],
  [
    "--database mysql://me:secret@host",
    `Cannot use --database "mysql://…": expected ${DATABASE_URLS}`,
  ],
  [
    "export --database ",
    'Cannot use --database "": expected a value; for the default, omit the flag',
  ],
];

test.each(wrongCalls)("%j is refused in one line", async (words, stderr) => {
  expect(await call(...words.split(" "))).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `${stderr}\n`,
  });
});

test.each(["", "serve ", "migrate ", "import ", "restore ", "plant get ", "--port "])(
  "the password of a URL that is typed in the wrong place is not printed: %j",
  async (words) => {
    const { stderr } = await call(...`${words}mysql://me:se@cret@host/plants`.split(" "));
    expect(stderr).toMatch(/mysql:\/\/?me:…@host\/plants/);
    expect(stderr).not.toContain("cret@");
  },
);

/** A disk with the WAL of a killed server, which fails the checkpoint at the end of a command. */
async function diskThatKeepsTheWal() {
  const disk = makeDisk({ shim: true });
  await using server = await startServer(disk.server());
  expect((await post(server.url)).status).toBe(200);
  server.child.kill("SIGKILL");
  await server.child.exited;
  disk.raise("fail-checkpoint");
  return disk;
}

test.skipIf(skipsShim())(
  "a command on a disk that also fails when the database is closed reports the first failure in one line",
  async () => {
    using disk = await diskThatKeepsTheWal();
    const { cwd, env } = disk.server();
    const program = shell('exec "$@" token create gate >/dev/full');
    const run = await runToEnd({ program, ...(cwd && { cwd }), ...(env && { env }) });

    const stderr = "Cannot write the output: no space left on device\n";
    expect(run).toEqual({ exitCode: 1, stdout: "", stderr });
    expect(disk.isRaised("hit")).toBe(true);
  },
);

const UNMOVED =
  'Cannot move the WAL into database "DATABASE": disk I/O error; nothing is lost: the WAL stays beside it\n';

test.skipIf(skipsShim()).each([
  [
    "token create gate",
    /^plant_\w+\n$/,
    `Created token "gate" in "DATABASE". Save it: it cannot be shown again. It does not expire.\n${UNMOVED}`,
  ],
  ["token prune", /^$/, `Deleted 0 revoked or expired tokens from "DATABASE".\n${UNMOVED}`],
  ["import -", /^$/, UNMOVED],
  ["migrate", /^$/, UNMOVED],
])("%s that does its work, but cannot move the WAL, says so", async (call, result, says) => {
  using disk = await diskThatKeepsTheWal();
  const { cwd, env, args } = disk.server();
  const run = await runToEnd({
    args: [...call.split(" "), ...(args ?? [])],
    ...(cwd && { cwd }),
    ...(env && { env }),
  });
  expect(run).toEqual({
    exitCode: 1,
    stdout: expect.stringMatching(result),
    stderr: says.replaceAll("DATABASE", disk.database),
  });
});

test.each(["export", "restore plants.db --database restored.db"])(
  "%s with too few file descriptors ends, without a stack",
  async (command) => {
    using here = emptyDirectory();
    const cwd = here.path;
    expect((await runToEnd({ cwd, args: ["migrate"] })).exitCode).toBe(0);

    for (let descriptors = 6; descriptors <= 12; descriptors++) {
      // A loop without an end meets the limit of its processor time, in seconds.
      const program = shell(`ulimit -n ${descriptors}; ulimit -t 3; exec "$@" ${command}`);
      const { exitCode, stderr } = await runToEnd({ cwd, program });
      // Bun ends a process that has none for a Worker.
      const says = exitCode === 0 ? /^(?:Restored .+\n)?$/ : /^Cannot .+\n$|ran out of file desc/;
      expect(stderr).toMatch(says);
      expect(exitCode).toBeLessThan(2);
    }
  },
);
