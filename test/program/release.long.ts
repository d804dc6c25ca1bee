import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { version } from "../../src/build/version.ts";
import { post, TOKEN } from "../support/client.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  runToEnd,
  startServer,
} from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/**
 * Of elf(5), and of the headers of Mach-O and PE: the field that names the processor, and what else
 * tells systems apart.
 */
const SYSTEMS = {
  "linux-x64": { magic: "\x7fELF", processor: "3e00", interpreter: "/lib64/ld-linux-x86-64" },
  "linux-x64-musl": { magic: "\x7fELF", processor: "3e00", interpreter: "/lib/ld-musl-x86_64" },
  "linux-arm64": { magic: "\x7fELF", processor: "b700", interpreter: "/lib/ld-linux-aarch64" },
  "linux-arm64-musl": { magic: "\x7fELF", processor: "b700", interpreter: "/lib/ld-musl-aarch64" },
  "darwin-x64": { magic: "\xcf\xfa\xed\xfe", processor: "07000001", interpreter: "/usr/lib/dyld" },
  "darwin-arm64": {
    magic: "\xcf\xfa\xed\xfe",
    processor: "0c000001",
    interpreter: "/usr/lib/dyld",
  },
  "windows-x64": { magic: "MZ", processor: "6486", interpreter: "PE\0\0" },
  "windows-arm64": { magic: "MZ", processor: "64aa", interpreter: "PE\0\0" },
} as const;

type System = keyof typeof SYSTEMS;

const titleOf = (system: System) => `plant-store-${version()}-${system}`;
const PACKAGE = `plant-store-${packageJson.version}.tgz`;

const release = emptyDirectory();
beforeAll(() => buildRelease(release.path));
afterAll(() => release[Symbol.dispose]());

/** Bun gets the runtime of each system from the registry, once. */
async function buildRelease(folder: string, ...systems: readonly System[]): Promise<void> {
  await Bun.$`${process.execPath} run release ${folder} ${systems}`.cwd(ROOT).quiet();
}

test("a release has an archive for each system, the npm package and the checksums of both", async () => {
  const archives = Object.keys(SYSTEMS).map((system) => `${titleOf(system as System)}.tar.gz`);
  expect(readdirSync(release.path).toSorted()).toEqual(
    [...archives, PACKAGE, "SHA256SUMS"].toSorted(),
  );
  const checked = await Bun.$`sha256sum --check --strict SHA256SUMS`.cwd(release.path).text();
  expect(checked.match(/: OK$/gm)).toHaveLength(archives.length + 1);
});

test.each(Object.entries(SYSTEMS))(
  "the archive for %s has an executable for it, and the licenses",
  async (name, system) => {
    using directory = emptyDirectory();
    const title = titleOf(name as System);
    await unpack(title, directory.path);
    const program = `plant-store${system.magic === "MZ" ? ".exe" : ""}`;
    expect(readdirSync(directory.path)).toEqual([title]);
    expect(readdirSync(directory.at(title)).toSorted()).toEqual([
      "LICENSE",
      "LICENSES.txt",
      program,
    ]);

    const head = Buffer.from(
      await Bun.file(join(directory.at(title), program))
        .slice(0, 16_384)
        .arrayBuffer(),
    );
    const processorAt = { "\x7fELF": 18, "\xcf\xfa\xed\xfe": 4, MZ: head.readUInt32LE(0x3c) + 4 }[
      system.magic
    ];
    expect({
      magic: head.toString("latin1", 0, system.magic.length),
      processor: head.toString("hex", processorAt, processorAt + system.processor.length / 2),
      interpreter: head.includes(system.interpreter) ? system.interpreter : "another",
    }).toEqual(system);
  },
);

test("the program of an archive runs in an empty directory", async () => {
  using directory = emptyDirectory();
  const title = titleOf("linux-x64");
  await unpack(title, directory.path);
  const program = [directory.at(`${title}/plant-store`)];
  const licenses = readFileSync(directory.at(`${title}/LICENSES.txt`), "utf8");

  expect(await runToEnd({ program, args: ["--version"] })).toEqual({
    exitCode: 0,
    stdout: `${version()}\n`,
    stderr: "",
  });
  expect(await runToEnd({ program, args: ["licenses"] })).toEqual({
    exitCode: 0,
    stdout: licenses,
    stderr: "",
  });

  await using server = await startServer({ program, env: { AUTH_TOKENS: TOKEN } });
  expect((await post(server.url)).status).toBe(200);
  expect((await fetch(`${server.url}/swagger`)).status).toBe(200);
  expect(readdirSync(server.cwd).filter((file) => !file.startsWith("plants.db"))).toEqual([]);
  expect(await server.stop()).toBe(0);
});

test("a second build has the same bytes", async () => {
  using second = emptyDirectory();
  await buildRelease(second.path, "linux-x64");
  const sums = (folder: string) =>
    readFileSync(join(folder, "SHA256SUMS"), "utf8").trim().split("\n");
  expect(sums(second.path)).toHaveLength(2);
  expect(sums(release.path)).toContainValues(sums(second.path));
});

async function unpack(title: string, directory: string): Promise<void> {
  await Bun.$`tar -xzf ${join(release.path, title)}.tar.gz`.cwd(directory);
}
