import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { version } from "../../src/build/version.ts";
import { post, TOKEN } from "../support/client.ts";
import { blocks } from "../support/guides.ts";
import { fern, jsonOf } from "../support/plants.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  runToEnd,
  startServer,
} from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { bootMachine, skipsBooting } from "./booted_machine.ts";

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

/** The last release, which the README's lines fetch. */
const [, RELEASED = ""] =
  /^## (\d+\.\d+\.\d+) - /m.exec(readFileSync(join(ROOT, "CHANGELOG.md"), "utf8")) ?? [];

/** What is built: for an operator's machine, and for another system. */
const BUILT = scaled<readonly System[]>(
  ["linux-x64", "windows-x64"],
  Object.keys(SYSTEMS) as System[],
);

const release = emptyDirectory();
beforeAll(() => buildRelease(release.path, ...BUILT));
afterAll(() => release[Symbol.dispose]());

/** Bun gets the runtime of each system from the registry, once. */
async function buildRelease(folder: string, ...systems: readonly System[]): Promise<void> {
  const env = { ...process.env, TRIAL: "yes" };
  await Bun.$`${process.execPath} run release ${folder} ${systems}`.env(env).cwd(ROOT).quiet();
}

test("a release has an archive for each system, packages, and their checksums", async () => {
  const archives = BUILT.map((system) => `${titleOf(system)}.tar.gz`);
  const packages = readdirSync(release.path).filter((name) => /\.(?:deb|rpm)$/.test(name));
  const version = String.raw`\d+\.\d+\.\d+[\w~+.]*`;
  const names = [`plant-store_${version}_amd64.deb`, `plant-store-${version}-1.x86_64.rpm`];
  const ofArm = [`plant-store_${version}_arm64.deb`, `plant-store-${version}-1.aarch64.rpm`];
  for (const name of BUILT.includes("linux-arm64") ? [...names, ...ofArm] : names)
    expect(packages).toContainEqual(expect.stringMatching(new RegExp(`^${name}$`)));
  expect(readdirSync(release.path).toSorted()).toEqual(
    [...archives, ...packages, PACKAGE, "SHA256SUMS"].toSorted(),
  );
  const checked = await Bun.$`sha256sum --check --strict SHA256SUMS`.cwd(release.path).text();
  expect(checked.match(/: OK$/gm)).toHaveLength(archives.length + packages.length + 1);
});

test.each(BUILT)("the archive for %s has an executable for it, and the licenses", async (name) => {
  using directory = emptyDirectory();
  const system = SYSTEMS[name];
  const title = titleOf(name);
  await unpack(title, directory.path);
  const program = `plant-store${system.magic === "MZ" ? ".exe" : ""}`;
  expect(readdirSync(directory.path)).toEqual([title]);
  expect(readdirSync(directory.at(title)).toSorted()).toEqual(["LICENSE", "LICENSES.txt", program]);

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
});

test("the README's lines check and unpack an archive, whose program runs in an empty directory", async () => {
  using directory = emptyDirectory();
  const lines = (blocks("Quick start", "sh").find((block) => block.includes("SHA256SUMS")) ?? "")
    .replace(/https:\S+\/v[\d.]+/, `file://${release.path}`)
    .replaceAll(RELEASED, version())
    .trim()
    .split("\n");
  const program = [directory.at(lines.pop() ?? "")];
  await Bun.$`bash -euc ${lines.join("\n")}`.cwd(directory.path).quiet();
  const licenses = readFileSync(join(dirname(program[0] ?? ""), "LICENSES.txt"), "utf8");

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

/** In a repository of its own: the owner fills in the address of this one. */
test("a release is refused while the repository has a placeholder for its address", async () => {
  using repository = emptyDirectory();
  const root = repository.path;
  await Bun.write(repository.at(".ci/release"), Bun.file(join(ROOT, ".ci/release")));
  // In parts, so that no release finds it here.
  await Bun.write(
    repository.at("package.json"),
    `"https://git.${"example"}.org/OWNER/plant-store"\n`,
  );
  await Bun.$`git init --quiet && git add --all`.cwd(root);

  const { exitCode, stderr } = await Bun.$`bash .ci/release release`.cwd(root).nothrow().quiet();
  expect(exitCode).toBe(1);
  expect(stderr.toString()).toStartWith("Cannot build a release with these placeholders");
  expect(stderr.toString()).toContain("package.json:1:");
  expect(readdirSync(root)).not.toContain("release");
});

test("a second build has the same bytes", async () => {
  using second = emptyDirectory();
  await buildRelease(second.path, "linux-x64");
  const sums = (folder: string) =>
    readFileSync(join(folder, "SHA256SUMS"), "utf8").trim().split("\n");
  // An archive, two packages, and that of npm.
  expect(sums(second.path)).toHaveLength(4);
  expect(sums(release.path)).toContainValues(sums(second.path));
});

test.skipIf(skipsBooting())(
  "the Debian package serves, backs up, is upgraded, removed and purged, and the plants stay",
  async () => {
    await using machine = await bootMachine();
    const deb = readdirSync(release.path).find((name) => name.endsWith("_amd64.deb")) ?? "";
    copyFileSync(join(release.path, deb), `${machine.root}/root/plant-store.deb`);
    const run = async (script: string) => {
      const ended = await machine.run(script);
      expect(ended, script).toMatchObject({ exitCode: 0 });
      return ended.stdout;
    };
    const statusOf = (id: number) =>
      run(
        `curl -s --retry 20 --retry-connrefused --retry-delay 1 -o /dev/null -w '%{http_code}' http://127.0.0.1:3000/plants \\
          -H "Authorization: Bearer $(cat token)" -H 'Content-Type: application/json' -d '${jsonOf(fern({ id }))}'`,
      );
    const owners = "stat -c %U:%G:%a";

    // Installing starts nothing.
    await run("dpkg -i plant-store.deb");
    expect((await machine.run("systemctl is-active plant-store")).stdout).toBe("inactive\n");
    expect(await run(`${owners} /var/lib/plant-store /etc/plant-store/plant-store.env`)).toBe(
      "plant-store:plant-store:700\nroot:plant-store:640\n",
    );

    // Two lines serve.
    await run("plant-store token create greenhouse > token");
    await run("systemctl enable --now plant-store");
    expect(await statusOf(1)).toBe("200");
    expect(await run("journalctl -u plant-store")).toContain("/etc/plant-store/plant-store.env");
    expect(await run(`${owners} /var/lib/plant-store/plants.db`)).toBe(
      "plant-store:plant-store:600\n",
    );
    await run("plant-store serve --check");

    await run(
      "systemctl enable --now plant-store-backup.timer && systemctl start plant-store-backup",
    );
    expect(await run(`${owners} /var/backups/plant-store/*.db`)).toBe(
      "plant-store:plant-store:600\n",
    );

    // A backup that fails calls the operator's own script.
    await run(`printf '#!/bin/sh\\nlogger -t alert "$1 failed"\\n' > /etc/plant-store/on-failure
      chmod +x /etc/plant-store/on-failure; chmod 500 /var/backups/plant-store`);
    expect((await machine.run("systemctl start plant-store-backup")).exitCode).toBe(1);
    await run(
      "for i in $(seq 100); do journalctl -t alert | grep -q 'plant-store-backup.service failed' && exit; sleep .1; done; exit 1",
    );

    // An upgrade keeps the settings, and restarts the server.
    await run("echo QUEUE_LIMIT=77 >> /etc/plant-store/plant-store.env");
    const before = await run("systemctl show -P MainPID plant-store");
    await run("dpkg -i plant-store.deb");
    expect(await run("systemctl show -P MainPID plant-store")).not.toBe(before);
    expect(await statusOf(2)).toBe("200");
    expect(await run("journalctl -u plant-store")).toContain('"queueLimit":77');
    expect(await run("plant-store export")).toBe(
      [1, 2].map((id) => `${jsonOf(fern({ id }))}\n`).join(""),
    );

    // Nor does an upgrade need a file that the operator has deleted, and dpkg does not bring back.
    await run("systemctl stop plant-store && rm /etc/plant-store/plant-store.env");
    await run("dpkg -i plant-store.deb");

    await run("dpkg -r plant-store");
    expect((await machine.run("systemctl is-active plant-store")).exitCode).not.toBe(0);
    expect(await run("dpkg --purge plant-store")).toContain(
      "The plants stay in /var/lib/plant-store, and their backups in /var/backups/plant-store.",
    );
    await run("test -s /var/lib/plant-store/plants.db && ls /var/backups/plant-store/*.db");
  },
);

async function unpack(title: string, directory: string): Promise<void> {
  await Bun.$`tar -xzf ${join(release.path, title)}.tar.gz`.cwd(directory);
}
