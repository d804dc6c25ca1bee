import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { section } from "../support/guides.ts";
import { packInto } from "../support/installed_package.ts";
import { RUNTIMES_MODULES, skipsRuntimes } from "../support/module_runtimes.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const PATH_WITH_NODE = `${join(RUNTIMES_MODULES, "node-22/bin")}:${process.env["PATH"]}`;

const MAX_PACKAGES = 25;
const MAX_BYTES = 15_000_000;

const directory = emptyDirectory();
let tarball = "";
beforeAll(async () => {
  tarball = await packInto(directory.path);
});
afterAll(() => directory[Symbol.dispose]());

const managers = [
  { name: "npm", add: ["npm", "install"] },
  { name: "pnpm", add: [join(RUNTIMES_MODULES, "pnpm/bin/pnpm.cjs"), "add"] },
  { name: "Yarn", add: [join(RUNTIMES_MODULES, "yarn/bin/yarn.js"), "add"] },
  { name: "Bun", add: [process.execPath, "add"] },
];

/** From the registry, and without a lock file: what a project of somebody else gets today. */
test.skipIf(skipsRuntimes("what package managers install")).each(managers)(
  "$name installs the package without a warning, a script of a dependency or too much",
  async ({ add }) => {
    using project = emptyDirectory();
    await Bun.write(
      project.at("package.json"),
      '{ "name": "project", "version": "1.0.0", "license": "MIT" }',
    );

    const command = [...add, tarball];
    const env = { ...process.env, PATH: PATH_WITH_NODE };
    const { exitCode, stdout, stderr } = await Bun.$`${command}`
      .cwd(project.path)
      .env(env)
      .nothrow()
      .quiet();
    const output = `${stdout}\n${stderr}`;
    expect({ exitCode, output }).toMatchObject({ exitCode: 0 });

    const warnings = output.match(/.*(?:\bwarn|peer|deprecated|script|blocked).*/gi) ?? [];
    // A machine's own settings are none of the package's business.
    expect(warnings.filter((line) => !/user config|No license field/.test(line))).toEqual([]);

    const { packages, bytes } = installed(project.at("node_modules"));
    console.log(
      `${basename(add.join(" "))}: ${packages.size} packages, ${(bytes / 1e6).toFixed(1)} MB`,
    );

    expect(packages).toContain(packageJson.name);
    expect(packages.size).toBeLessThanOrEqual(MAX_PACKAGES);
    expect(bytes).toBeLessThanOrEqual(MAX_BYTES);
  },
);

/** From the registry: npm 12 runs no install script that is not allowed, and Bun's package has one. */
test.skipIf(skipsRuntimes("npx of npm 12"))(
  "npx of npm 12 runs the README's Bun, and then again without the registry",
  async () => {
    using project = emptyDirectory();
    for (const file of [".npmrc", "package.json"]) copyFileSync(join(ROOT, file), project.at(file));

    using npm = emptyDirectory();
    await Bun.$`npm install --prefix ${npm.path} npm@12`.quiet();
    const [node, npx] = [
      join(RUNTIMES_MODULES, "node-22/bin/node"),
      npm.at("node_modules/npm/bin/npx-cli.js"),
    ];
    const [bun = ""] = /\bbun@[\d.]+/.exec(section("Quick start")) ?? [];
    const run = async (environment: Record<string, string> = {}) => {
      const { stdout, stderr } = await Bun.$`${node} ${npx} -y ${bun} --version`
        .cwd(project.path)
        .env({ ...process.env, npm_config_cache: npm.at("cache"), ...environment })
        .nothrow()
        .quiet();
      // A machine's own settings are none of the checkout's business.
      const errors = stderr.toString().match(/^(?!npm notice|.*user config).+$/gm);
      return { stdout: stdout.toString(), errors };
    };
    const printed = { stdout: `${Bun.version}\n`, errors: null };
    expect(await run()).toEqual(printed);

    let connections = 0;
    using proxy = Bun.listen({
      hostname: "127.0.0.1",
      port: 0,
      socket: {
        open(socket) {
          connections += 1;
          socket.end();
        },
        data() {},
      },
    });
    const address = `http://127.0.0.1:${proxy.port}`;
    const offline = {
      npm_config_proxy: address,
      npm_config_https_proxy: address,
      npm_config_noproxy: "",
      npm_config_fetch_retries: "0",
    };
    expect(await run(offline)).toEqual(printed);
    expect(connections).toBe(0);
  },
);

/** The packages below a folder and the bytes of all files, each once though pnpm links to them. */
function installed(modules: string): { packages: Set<string>; bytes: number } {
  const entries = readdirSync(modules, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const files = new Set(entries.map((entry) => realpathSync(join(entry.parentPath, entry.name))));
  const names = [...files].map(
    (path) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\/package\.json$/.exec(path)?.[1],
  );
  const bytes = [...files].reduce((sum, path) => sum + statSync(path).size, 0);

  return { packages: new Set(names.filter((name) => name !== undefined)), bytes };
}
