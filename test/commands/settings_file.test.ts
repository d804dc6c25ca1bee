import { expect, setDefaultTimeout, test } from "bun:test";
import { chmodSync, chownSync, mkdirSync, symlinkSync } from "node:fs";

import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Whether the tests run as root, who may give files away. */
const isRoot = process.getuid?.() === 0;

/** A directory with a file of settings. */
async function settingsIn(text: string) {
  const home = emptyDirectory();
  const file = home.at("plant-store.env");
  await Bun.write(file, text.replaceAll("HOME", home.path));
  chmodSync(file, 0o640);
  return { home, file, [Symbol.dispose]: () => home[Symbol.dispose]() };
}

/** What `migrate` prints names the database that the settings name. */
const migrate = (args: readonly string[], environment: Record<string, string> = {}) =>
  runCommand(["migrate", ...args], environment);

test("a command reads the file of --settings: the environment wins over it, a flag over both", async () => {
  using settings = await settingsIn(
    "\ufeff# where plants are kept\r\n\r\n  DATABASE_URL=file:HOME/file.db  \r\n",
  );
  const { home, file } = settings;
  const environment = { DATABASE_URL: `file:${home.at("environment.db")}` };
  const flag = ["--database", home.at("flag.db")];

  const fromFile = await migrate(["--settings", file]);
  expect(fromFile).toMatchObject({ exitCode: 0 });
  expect(fromFile.stderr).toContain("/file.db");
  const empty = await migrate(["--settings", file, "--dry-run"], { DATABASE_URL: "" });
  expect(empty).toMatchObject({ exitCode: 0, stdout: "" });
  expect((await migrate(["--settings", file], environment)).stderr).toContain("/environment.db");
  expect((await migrate(["--settings", file, ...flag], environment)).stderr).toContain("/flag.db");
});

test("a variable that names the database wins over both of the file", async () => {
  using settings = await settingsIn("DATABASE_URL=file:HOME/file.db");
  const { home, file } = settings;
  const url = home.at("url");
  await Bun.write(url, `file:${home.at("environment.db")}`);

  const fromUrl = await migrate(["--settings", file], { DATABASE_URL_FILE: url });
  expect(fromUrl).toMatchObject({ exitCode: 0 });
  expect(fromUrl.stderr).toContain("/environment.db");

  await Bun.write(file, `DATABASE_URL_FILE=${home.at("missing")}`);
  const environment = { DATABASE_URL: `file:${home.at("other.db")}` };
  expect((await migrate(["--settings", file], environment)).stderr).toContain("/other.db");

  await Bun.write(file, `DATABASE_URL=file:x.db\nDATABASE_URL_FILE=${url}`);
  expect((await migrate(["--settings", file])).stderr).toBe(
    `Cannot use both DATABASE_URL and DATABASE_URL_FILE\n`,
  );
});

test("an installed executable reads its own file of settings if there is one, and --settings instead", async () => {
  using settings = await settingsIn("DATABASE_URL=file:HOME/installed.db");
  using other = await settingsIn("DATABASE_URL=file:HOME/other.db");
  const installed = (path: string, ...args: string[]) =>
    runCommand(["migrate", ...args], {}, { settingsFile: path });

  expect((await installed(settings.file)).stderr).toContain("/installed.db");
  expect((await installed(settings.file, "--settings", other.file)).stderr).toContain("/other.db");

  const missing = settings.home.at("missing.env");
  expect((await installed(missing, "--dry-run")).exitCode).toBe(0);
  expect(await installed(settings.file, "--settings", missing)).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `Cannot use --settings "${missing}": no such file or directory\n`,
  });
});

test.each([
  ["a link to a file that is not there", "link", "no such file or directory"],
  ["in a directory that cannot be reached", "loop/plant-store.env", "too many symbolic links"],
])("its own file of settings is refused if it is %s", async (_, name, reason) => {
  using home = emptyDirectory();
  symlinkSync("missing", home.at("link"));
  symlinkSync("loop", home.at("loop"));
  const settingsFile = home.at(name);
  const { exitCode, stderr } = await runCommand(["plant", "count"], {}, { settingsFile });
  expect(exitCode).toBe(2);
  expect(stderr).toStartWith(`Cannot use the file of settings "${settingsFile}": ${reason}`);
});

test("a server reads it, names it, and logs as it says", async () => {
  using settings = await settingsIn(
    "DATABASE_URL=file:HOME/plants.db\nLOG_FORMAT=json\nPORT=0\nOTEL_SERVICE_NAME=garden\n",
  );
  const { home, file } = settings;
  await using server = await startServer({ args: ["--settings", file], cwd: home.path });
  const [line = ""] = await server.stderr.until(/^.*Read the settings.*$/m);
  expect(JSON.parse(line)).toMatchObject({ message: `Read the settings in "${file}"` });

  const check = await runToEnd({ args: ["serve", "--check", "--settings", file], cwd: home.path });
  expect(check.stdout).toBe(`The database "${home.at("plants.db")}" is up to date\n`);

  await Bun.write(file, "PORT=x");
  const refused = await runToEnd({ args: ["--settings", file], cwd: home.path });
  expect(refused).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `Cannot use PORT=x: expected an integer from 0 to 65535\n`,
  });
});

const SECRET = "a-secret-of-the-greenhouse";

test.each([
  [`AUTH_TOKENS ${SECRET}`, 'line 1 of "FILE": expected NAME=value'],
  [SECRET, 'line 1 of "FILE": expected NAME=value'],
  [`export AUTH_TOKENS=${SECRET}`, 'line 1 of "FILE": expected NAME=value'],
  [`\nAUTH_TOKEN=${SECRET}`, 'AUTH_TOKEN in line 2 of "FILE": did you mean AUTH_TOKENS?'],
  [`LD_PRELOAD=${SECRET}`, 'LD_PRELOAD in line 1 of "FILE": it is not a setting'],
  [`AUTH_TOKENS="${SECRET}"`, "AUTH_TOKENS: remove the quotes around its value"],
  [`AUTH_TOKENS=${SECRET} # x`, "AUTH_TOKENS: remove the comment after its value"],
])("a file with the line %j is refused, and its values are not printed", async (text, reason) => {
  using settings = await settingsIn(text);
  const { home, file } = settings;
  const database = ["--database", home.at("plants.db")];
  const refused = await migrate(["--settings", file, ...database]);
  expect(refused).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `Cannot use ${reason.replace("FILE", file)}\n`,
  });
  expect(await Bun.file(home.at("plants.db")).exists()).toBe(false);
});

test.each([
  [0o660, "group"],
  [0o606, "others"],
])("a file of mode %o is refused: its %s could change every setting", async (mode) => {
  using settings = await settingsIn("PORT=0");
  chmodSync(settings.file, mode);
  const { exitCode, stderr } = await migrate(["--settings", settings.file]);
  expect({ exitCode, stderr }).toEqual({
    exitCode: 2,
    stderr: `Cannot use --settings "${settings.file}": other users can write to it, and so change every setting: chmod go-w ${settings.file}\n`,
  });
});

test("a directory, a pipe and a file that is too large are refused at once", async () => {
  using settings = await settingsIn(`# ${"x".repeat(2 ** 20)}`);
  const { home, file } = settings;
  const fault = async (path: string) =>
    (await migrate(["--settings", path])).stderr.replace(/^Cannot use --settings ".*": /, "");
  mkdirSync(home.at("directory"));
  await Bun.$`mkfifo ${home.at("pipe")}`;

  expect(await fault(file)).toBe("expected at most 1048576 bytes\n");
  expect(await fault(home.at("directory"))).toBe("it is not a regular file\n");
  expect(await fault(home.at("pipe"))).toBe("it is not a regular file\n");
});

test.skipIf(!isRoot)("a file of another user is refused, unless it is root's", async () => {
  using settings = await settingsIn("PORT=0");
  chownSync(settings.file, 65534, 65534);
  const { exitCode, stderr } = await migrate(["--settings", settings.file]);
  expect(exitCode).toBe(2);
  expect(stderr).toContain("it belongs to uid 65534, who could change every setting");
});

test("a command without a database reads no settings", async () => {
  using settings = await settingsIn("nonsense");
  const { file: settingsFile } = settings;
  expect((await runCommand(["licenses"], {}, { settingsFile })).exitCode).toBe(0);
});
