import { expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { ROOT, runToEnd, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const printed = await runToEnd({ args: ["licenses"] });
const sections = printed.stdout.split(/\n\n-{80}\n\n/);

test("the executable prints the license and the notices of every package that the program or the module bundles", async () => {
  const { scripts } = packageJson;
  const packages = [
    ...(await packagesBundledBy(scripts["build:program"])),
    ...(await packagesBundledBy(scripts["build:module"])),
  ];

  const missing = packages.filter(({ directory, title }) => {
    const notices = readdirSync(directory).filter((name) => /^(?:licen[cs]e|notice)/i.test(name));
    const texts = notices.map((name) => readFileSync(join(directory, name), "utf8").trim());
    const own = sections.filter((section) =>
      section.split("\n\n", 1)[0]?.split("\n").includes(title),
    );
    return own.length === 0 || texts.some((text) => !own.some((section) => section.includes(text)));
  });

  expect(missing.map(({ title }) => title)).toEqual([]);
  expect(packages.length).toBeGreaterThan(20);
});

test.each([
  ["Plant Store", readFileSync(join(ROOT, "LICENSE"), "utf8").trim()],
  ["Bun", `Bun ${Bun.version}\n\nBun itself is MIT-licensed.`],
  ["Swagger UI, its NOTICE", "swagger-ui\nCopyright 2020-2021 SmartBear Software Inc."],
  ["what Swagger UI was bundled from", "@license React"],
])("the executable prints the license of %s", (_what, text) => {
  expect({ ...printed, stdout: printed.stdout.includes(text) }).toEqual({
    exitCode: 0,
    stdout: true,
    stderr: "",
  });
});

test("a package that only names its license has its text", () => {
  const files = readdirSync(join(ROOT, "node_modules/drizzle-orm"));
  const section = sections.find((text) => /^drizzle-orm /m.test(text));
  expect(files.filter((name) => /license/i.test(name))).toEqual([]);
  expect(section).toContain("TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION");
});

/** Every package that Bun reads while it makes this bundle. */
async function packagesBundledBy(script: string) {
  const [command = ""] = /bun build (?:src\/\S+ )+/.exec(script) ?? [];
  const { metafile } = await Bun.build({
    entrypoints: (command.match(/src\/\S+\.ts/g) ?? []).map((path) => join(ROOT, path)),
    external: Array.from(script.matchAll(/--external=(\S+)/g), ([, name = ""]) => name),
    target: "bun",
    splitting: true,
    metafile: true,
  });

  const paths = Object.keys(metafile?.inputs ?? {});
  const directories = paths.map((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0]);

  return [...new Set(directories)]
    .filter((directory) => directory !== undefined)
    .map((directory) => {
      const { name, version, license } = JSON.parse(
        readFileSync(join(ROOT, directory, "package.json"), "utf8"),
      );
      return { directory: join(ROOT, directory), title: `${name} ${version}, ${license}` };
    });
}
