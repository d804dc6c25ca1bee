import { cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";

import { executable } from "../support/executable.ts";
import { codeThatExports } from "../support/guides.ts";
import { missing } from "../support/missing.ts";
import { fern, returned } from "../support/plants.ts";
import { emptyDirectory, ROOT } from "../support/program.ts";
import type { CreatePlant } from "./generated_client.ts";

const HERE = import.meta.dir;
/** Where the generators are, if they are. */
const MODULES = join(HERE, "node_modules");

/** Whether the generators are not here. Says so with how to get them, or fails in CI. */
export function skipsClients(): boolean {
  const isThere = existsSync(join(MODULES, "openapi-typescript"));
  return (
    !isThere &&
    missing("generated clients: bun install --frozen-lockfile --cwd test/clients has not run")
  );
}

/** A Python with what the generated client imports: the first on PATH, or Debian's. */
const PYTHON = ["python3", "/usr/bin/python3"].find(
  (path) =>
    Bun.which(path) &&
    Bun.spawnSync([path, "-c", "import certifi, dateutil, six, urllib3"]).success,
);

/** Whether OpenAPI Generator cannot run here, or what it makes. Says so, or fails in CI. */
export function skipsPython(): boolean {
  const isThere = PYTHON !== undefined && Bun.which("java") !== null;
  return (
    !isThere && missing(`the client in Python: apt-get install ${DEBIAN_PACKAGES} has not run`)
  );
}

const DEBIAN_PACKAGES =
  "default-jre-headless python3-certifi python3-dateutil python3-six python3-urllib3";

/** Makes every client from the document, in a directory that is gone at the end of the scope. */
export async function generateClients({ python }: { readonly python: boolean }) {
  const directory = emptyDirectory();
  const { path } = directory;
  cpSync(join(HERE, "programs"), join(path, "programs"), { recursive: true });
  await writeRecord(path);
  symlinkSync(MODULES, join(path, "node_modules"));
  mkdirSync(join(path, "generated"));
  cpSync(join(ROOT, "src/http/client.ts"), join(path, "programs/client.ts"));

  const guide = codeThatExports("storeFern").replace('"plant-store/client"', '"./client.ts"');
  await Bun.write(join(path, "programs/store_fern.ts"), guide);
  await Bun.write(join(path, "openapi.json"), await run(path, [...executable(), "openapi"]));

  await Promise.all([
    run(path, bin("openapi-typescript", "openapi.json", "--output", "programs/plants.d.ts")),
    run(
      path,
      bin(
        "openapi-ts",
        "--input",
        "openapi.json",
        "--output",
        "generated/hey_api",
        "--no-log-file",
      ),
    ),
    run(path, bin("orval", "--config", "programs/orval.config.json")),
    python &&
      run(path, [
        "java",
        "-jar",
        JAR,
        "generate",
        "-g",
        "python",
        "-i",
        "openapi.json",
        "-o",
        "generated/python",
      ]),
  ]);

  return directory;
}

/** What the programs need of the record: its type, and the fields of a plant. */
async function writeRecord(path: string): Promise<void> {
  const source = await Bun.file(join(ROOT, "src/plant/plant.ts")).text();
  const [fields = ""] = /^export interface Plant \{.*?^\}/ms.exec(source) ?? [];
  const types = await Bun.file(join(HERE, "generated_client.ts")).text();
  const own = types.replace(/^import .*$/m, fields.replace("Plant", "Fields"));
  await Bun.write(join(path, "generated_client.ts"), own);
  const constant = `export const FERN = ${JSON.stringify(returned(fern()))};\n`;
  await Bun.write(join(path, "programs/fern.ts"), constant);
}

const JAR = "node_modules/@openapitools/openapi-generator-cli/bin/openapi-generator.jar";

/**
 * Type-checks the clients and the programs that use them, and the README's code. Resolves to what
 * is wrong.
 */
export function typeCheck(path: string): Promise<string> {
  return run(path, bin("tsc", "--project", "programs"));
}

/** A program of a package here, on this Bun. */
function bin(name: string, ...args: string[]): string[] {
  return [process.execPath, "--bun", `node_modules/.bin/${name}`, ...args];
}

/** Runs a program to its end, and resolves to what it wrote. */
async function run(cwd: string, command: string[], stdin = ""): Promise<string> {
  const child = Bun.spawn(command, {
    cwd,
    stdin: new Blob([stdin]),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0)
    throw new Error(`${command.join(" ")} failed:\n${stdout}\n${stderr}`);

  return stdout;
}

/** Loads one of the programs in TypeScript, or its code from the README. */
export async function load<Value>(path: string, program: string, name: string): Promise<Value> {
  return (await import(join(path, "programs", `${program}.ts`)))[name];
}

/** The program in Python. */
export function pythonClient(path: string): CreatePlant {
  return async (plant, { baseUrl, token, headers = {} }) => {
    const call = JSON.stringify({ base_url: baseUrl, token, plant, headers });
    const command = [
      "env",
      "PYTHONPATH=generated/python",
      PYTHON ?? "python3",
      "programs/python_client.py",
    ];

    return JSON.parse(await run(path, command, call));
  };
}
