import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import runtimes from "../runtimes/package.json" with { type: "json" };
import { namesOf } from "../../src/commands/command.ts";
import { declareProgram } from "../../src/commands/program.ts";
import { SETTINGS } from "../../src/settings/settings.ts";
import { ERRORS, statusOf, type ErrorCode } from "../../src/errors.ts";
import { blocks, cellsOf, guides, section, table } from "../support/guides.ts";
import { ROOT } from "../support/program.ts";
import { TERMINAL_FILE, terminalPicture } from "./terminal.ts";

const [{ text: readme } = { text: "" }] = guides;

/** The links of a page, outside of code: those to files as paths from the root, each with its anchor or "". */
function linksOf({ path, text }: { path: string; text: string }) {
  const prose = text.replace(/^```.*?^```/gms, "").replace(/`[^`\n]*`/g, "");
  return Array.from(prose.matchAll(/\]\(([^)\s]+)\)/g), ([, target = ""]) => target)
    .filter((target) => !/^https?:/.test(target))
    .map((target) => {
      const [file = "", anchor = ""] = target.split("#");
      return { path: file === "" ? path : join(dirname(path), file), anchor };
    });
}

/** The anchors that Markdown hosts make of a page's headings. */
function anchorsOf(text: string): string[] {
  const headings = Array.from(text.replace(/^```.*?^```/gms, "").matchAll(/^#+ (.+)$/gm), ([, title = ""]) => title);
  return headings.map((title) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-"),
  );
}

test.each(guides.map((guide) => guide))("the links of $path lead to files and headings that exist", (guide) => {
  const broken = linksOf(guide).filter(({ path, anchor }) => {
    if (!existsSync(join(ROOT, path))) return true;
    const text = path === guide.path ? guide.text : guides.find((each) => each.path === path)?.text;
    return anchor !== "" && !anchorsOf(text ?? "").includes(anchor);
  });
  expect(broken).toEqual([]);
});

test("the README links every guide", () => {
  const linked = new Set(linksOf({ path: "README.md", text: readme }).map(({ path }) => path));
  expect(guides.map(({ path }) => path).filter((path) => path !== "README.md" && !linked.has(path))).toEqual([]);
});

test("the API guide's table of responses is the program's", () => {
  const errors = (Object.keys(ERRORS) as ErrorCode[]).map((code) => ({ status: statusOf(code), ...ERRORS[code] }));
  const documented = table("Responses").filter(([, , error]) => error !== "");
  expect(documented.map(([, status, error]) => [Number(status), Number(error)])).toEqual(
    errors.map(({ status, error }) => [status, error]),
  );
  // Where there is more to say, the table has the beginning.
  const others = documented.filter(([situation = ""], index) => !errors[index]?.situation.startsWith(situation));
  expect(others).toEqual([]);
});

test("every guide names the pinned Bun, and no other", () => {
  const versions = guides.flatMap(({ text }) =>
    Array.from(text.matchAll(/\bbun@(\d+\.\d+\.\d+)/g), ([, version]) => version),
  );
  expect([...new Set(versions)]).toEqual([Bun.version]);
  expect(packageJson.packageManager).toBe(`bun@${Bun.version}`);
});

test("the embedding guide says from which Bun, Deno and Node on the module runs", () => {
  const bun = packageJson.packageManager.replace("bun@", "");
  const deno = runtimes.devDependencies["@deno/linux-x64-glibc"].replace(/\.\d+$/, "");
  const node = packageJson.engines.node.replace(">=", "");
  const embed = section("Embed the module").replace(/\s+/g, " ");
  for (const from of [`on Bun ${bun}`, `on Deno ${deno}`, `on Node ${node}`]) {
    expect(embed).toContain(`${from} and newer`);
  }
});

test("the container does not run as root", () => {
  const [dockerfile = ""] = blocks("Containers and Kubernetes", "dockerfile");
  expect(dockerfile.match(/^FROM .*$/gm)?.at(-1)).toEndWith(":nonroot");
});

/** Each setting as a row: variables, flag, default and meaning. */
const settings = Object.values(SETTINGS).map((setting) => {
  const presets = Object.values(setting.variables);
  return {
    names: namesOf(setting),
    flag: setting.flag?.split(" ")[0] ?? "",
    preset: presets.some(Boolean) ? presets.map((preset) => preset || "none").join(", ") : "none",
    meaning: setting.meaning,
  };
});

test("the operating guide's table of settings is the program's", () => {
  const [, text = ""] =
    guides.find(({ path }) => path === "src/commands/README.md")?.text.split("\n## Settings\n") ?? [];
  const [rows = ""] = /(?:^\|.*\n)+/m.exec(text) ?? [];
  const documented = rows
    .trim()
    .split("\n")
    .slice(2)
    .map((row) => {
      const [names, flag, preset] = cellsOf(row.replaceAll("`", ""));
      return { names, flag, preset, meaning: cellsOf(row)[3] };
    });
  expect(documented).toEqual(settings);
});

test("the settings in the README are among them, with their flags and defaults", () => {
  const documented = table("Settings").map(([names = "", flag = "", preset = ""]) =>
    [names, flag, preset].map((cell) => cell.replaceAll("`", "")),
  );
  const real = settings.map(({ names, flag, preset }) => [names, flag, preset === "none" ? "" : preset].join(" | "));
  expect(documented.map((row) => row.join(" | ")).filter((row) => !real.includes(row))).toEqual([]);
  expect(documented).toHaveLength(8);
});

const program = declareProgram(async () => {});

test("the operating guide's table of commands is the program's", () => {
  const documented = table("Commands").map(([name = ""]) => name.replaceAll("`", ""));
  expect(documented).toEqual([...program.commands.map((command) => command.name()), "help"]);
});

/** The calls of the program in the shell's blocks of all guides, without what the shell does around them. */
const calls = guides.flatMap(({ path, text }) =>
  Array.from(text.matchAll(/^```(?:sh|ini)\n(.*?)^```/gms), ([, code = ""]) => code)
    .flatMap((code) => code.replaceAll("\\\n", " ").split("\n"))
    .flatMap((line) => line.replace(/(?:^| )#.*$/, "").split(/[|&;]+/))
    .flatMap((part) => /^(?:.*(?:\s|bin\/))?plant-store ((?:[a-z]|--[a-z]).*)$/.exec(part.trim())?.[1] ?? [])
    .map((call) => ({ path, call })),
);

test.each(calls)("$path: plant-store $call names a command and flags that there are", ({ call }) => {
  const words = call.split(/\s+/);
  let command = program.commands.find((each) => each.name() === "serve");
  let known = program.commands;
  while (words[0] !== undefined && /^[a-z]+$/.test(words[0]) && known.length > 0) {
    const name = words.shift();
    command = known.find((each) => each.name() === name);
    expect({ name, isKnown: command !== undefined }).toEqual({ name, isKnown: true });
    known = command?.commands ?? [];
  }
  const flags = words.filter((word) => word.startsWith("--")).map((word) => word.split("=")[0]);
  const options = command?.options.map(({ long }) => long) ?? [];
  expect(flags.filter((flag) => flag !== "--" && !options.includes(flag))).toEqual([]);
});

test("the guides call the program often enough for that to mean something", () => {
  expect(calls.length).toBeGreaterThan(20);
});

test("every block of YAML in the guides can be parsed", () => {
  const yaml = guides.flatMap(({ text }) =>
    Array.from(text.matchAll(/^```yaml\n(.*?)^```/gms), ([, code = ""]) => code),
  );
  for (const code of yaml) expect(Bun.YAML.parse(code)).toBeObject();
  expect(yaml.length).toBeGreaterThan(3);
});

test("the picture in the README is a session of today's program", async () => {
  expect(await terminalPicture()).toBe(await Bun.file(TERMINAL_FILE).text());
});
