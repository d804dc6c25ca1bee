import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import runtimes from "../runtimes/package.json" with { type: "json" };
import { declareProgram } from "../../src/commands/program.ts";
import { defaultOf, namesOf } from "../../src/commands/command.ts";
import { SETTINGS } from "../../src/settings/settings.ts";
import { ERRORS, statusOf, type ErrorCode } from "../../src/errors.ts";
import { blocks, guides, table } from "../support/guides.ts";
import { ROOT } from "../support/program.ts";
import { streamIo } from "../support/stream_io.ts";

const [{ text: readme } = { text: "" }] = guides;

test("the README's response table is the program's", () => {
  const documented = table("Responses").flatMap(([, status, error]) => (error === "" ? [] : [[status, error]]));
  const real = (Object.keys(ERRORS) as ErrorCode[]).map((code) => [String(statusOf(code)), String(ERRORS[code].error)]);
  expect(documented).toEqual(real);
});

test("the README names the pinned Bun, and no other", () => {
  const versions = new Set(Array.from(readme.matchAll(/\bbun@(\d+\.\d+\.\d+)/g), ([, version]) => version));
  expect([...versions]).toEqual([Bun.version]);
  expect(packageJson.packageManager).toBe(`bun@${Bun.version}`);
});

test("the README says from which Bun, Deno and Node on the module runs", () => {
  const bun = packageJson.packageManager.replace("bun@", "");
  const deno = runtimes.devDependencies["@deno/linux-x64-glibc"].replace(/\.\d+$/, "");
  const node = packageJson.engines.node.replace(">=", "");
  const [embed = ""] = /^The package is also a module:[^]*?\n\n/m.exec(readme) ?? [];
  expect(embed.replace(/\s+/g, " ")).toContain(`on Bun ${bun} and newer`);
  expect(embed.replace(/\s+/g, " ")).toContain(`on Deno ${deno} and newer`);
  expect(embed.replace(/\s+/g, " ")).toContain(`on Node ${node} and newer`);
});

test("the README's container does not run as root", () => {
  const [dockerfile = ""] = blocks("Containers and Kubernetes", "dockerfile");
  expect(dockerfile.match(/^FROM .*$/gm)?.at(-1)).toEndWith(":nonroot");
});

test("the README's table of the configuration is the program's", () => {
  const documented = table("Configuration").map(([names = "", flag = "", preset = "", meaning]) => [
    ...[names, flag, preset].map((cell) => cell.replaceAll("`", "")),
    meaning,
  ]);
  const real = Object.values(SETTINGS).map((setting) => [
    namesOf(setting),
    setting.flag?.split(" ")[0] ?? "",
    defaultOf(setting),
    setting.meaning,
  ]);
  expect(documented).toEqual(real);
});

test("the README's table of the commands is the program's", () => {
  const { io } = streamIo();
  const program = declareProgram({ io, action: () => async () => {} }, () => {});
  const documented = table("Commands").map(([name = ""]) => name.replaceAll("`", ""));
  expect(documented).toEqual([...program.commands.map((command) => command.name()), "help"]);
});

test("the README's contents are its headings, in order", () => {
  const prose = readme.replace(/^ *```.*?^ *```$/gms, "");
  const headings = Array.from(prose.matchAll(/^##(#?) (.+)$/gm), ([, level = "", title = ""]) => ({ level, title }));
  const expected = headings
    .filter(({ title }) => title !== "Contents")
    .map(({ level, title }) => `${level === "" ? "" : "  "}- [${title}](#${anchorOf(title)})`);
  const [, contents = ""] = /^## Contents\n\n((?: *- .*\n)+)/m.exec(readme) ?? [];
  expect(contents.trimEnd().split("\n")).toEqual(expected);
});

test("the links of the README lead to files that exist", () => {
  const targets = Array.from(readme.matchAll(/\]\(([^)]+)\)/g), ([, target = ""]) => target);
  const local = targets.filter((target) => !/^(?:https?:|#)/.test(target));
  expect(local.filter((target) => !existsSync(join(ROOT, target)))).toEqual([]);
  expect(local).toContain("src/README.md");
});

/** The anchor that Markdown hosts make of a heading. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^\w\- ]/g, "")
    .replaceAll(" ", "-");
}
