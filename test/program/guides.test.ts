import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { declareProgram } from "../../src/commands/program.ts";
import { type ErrorCode, ERRORS, statusOf } from "../../src/errors.ts";
import { PATHS } from "../../src/http/paths.ts";
import { isRequired, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { SETTINGS } from "../../src/settings/settings.ts";
import { cellsOf, guides, section, table } from "../support/guides.ts";
import { ROOT } from "../support/program.ts";

/**
 * The pages as a host of Markdown shows them: their links to files, as paths from the root, and
 * their anchors.
 */
const pages = guides.map(({ path, text }) => {
  const html = Bun.markdown.html(text, { headings: { ids: true } });
  const links = Array.from(html.matchAll(/<a href="([^"]+)"/g), ([, target = ""]) => target)
    .filter((target) => !/^https?:/.test(target))
    .map((target) => {
      const [file = "", anchor] = target.split("#");
      return { path: file === "" ? path : join(dirname(path), file), anchor };
    });

  return { path, links, anchors: Array.from(html.matchAll(/<h\d id="([^"]+)"/g), ([, id]) => id) };
});

test.each(pages)("the links of $path lead to files and headings that exist", ({ links }) => {
  const broken = links.filter(({ path, anchor }) => {
    if (!existsSync(join(ROOT, path))) return true;
    return (
      anchor !== undefined && !pages.find((page) => page.path === path)?.anchors.includes(anchor)
    );
  });
  expect(broken).toEqual([]);
});

test("every guide is at most two links away from the README", () => {
  const linksOf = (paths: readonly (string | undefined)[]) =>
    pages.filter(({ path }) => paths.includes(path)).flatMap(({ links }) => links);
  const oneAway = linksOf(["README.md"]).map(({ path }) => path);
  const twoAway = linksOf(oneAway).map(({ path }) => path);
  const [, ...others] = pages.map(({ path }) => path);
  expect(others.filter((path) => ![...oneAway, ...twoAway].includes(path))).toEqual([]);
});

test("the API guide lists every path, and who may use it", () => {
  const operations = Object.entries(PATHS)
    // The page's own files, and the redirect to it.
    .filter(([path]) => path !== "/" && !/^\/swagger\/(?!json$)/.test(path))
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, access]) => [
        `\`${method} ${path}\``,
        access === "public" ? access : `token, scope \`${access}\``,
      ]),
    );
  const listed = table("Paths").map((row) => row.slice(0, 2));
  expect(listed.toSorted()).toEqual(operations.toSorted());
});

test("the API guide's table of responses is the program's", () => {
  const errors = (Object.keys(ERRORS) as ErrorCode[]).map((code) => ({
    status: statusOf(code),
    ...ERRORS[code],
  }));
  const documented = table("Responses").filter(([, , error]) => error !== "");
  expect(documented.map(([, status, error]) => [Number(status), Number(error)])).toEqual(
    errors.map(({ status, error }) => [status, error]),
  );

  // Where there is more to say, the table has the beginning.
  const others = documented.filter(
    ([situation = ""], index) => !errors[index]?.situation.startsWith(situation),
  );
  expect(others).toEqual([]);
});

/** Each table of the plant's fields in a guide. */
const fieldTables = guides.flatMap(({ path, text }) =>
  Array.from(text.matchAll(/^\| field .*\n\|.*\n((?:\|.*\n)+)/gm), ([, rows = ""]) => ({
    path,
    fields: rows
      .trim()
      .split("\n")
      .map((row) => cellsOf(row).slice(0, 2).map(plain)),
  })),
);

test.each(fieldTables)("$path lists the plant's fields, and which are required", ({ fields }) => {
  const rows = PLANT_FIELDS.map((field) => [field, isRequired(field) ? "yes" : "no"]);
  expect(fields).toEqual([["id", "yes"], ...rows]);
});

test.each([
  ["TypeScript", "src/http/client.ts", /^const FIELDS: readonly string\[\] = \[(.*?)\];$/ms],
  ["Python", "src/http/README.md", /^FIELDS = \((.*?)\)$/ms],
  ["Go", "src/http/README.md", /^var fields = \[\]string\{(.*?)\}$/ms],
])("the client in %s compares the plant's fields, and no others", async (_, path, list) => {
  const [, names = ""] = list.exec(await Bun.file(join(ROOT, path)).text()) ?? [];
  const listed: readonly string[] = names.match(/\w+/g) ?? [];
  expect(listed).toEqual(PLANT_FIELDS);
});

test("every guide names the pinned Bun, and no other", () => {
  const versions = guides.flatMap(({ text }) =>
    Array.from(text.matchAll(/\bbun@(\d+\.\d+\.\d+)/g), ([, version]) => version),
  );
  expect([...new Set(versions)]).toEqual([Bun.version]);
  expect(packageJson.packageManager).toBe(`bun@${Bun.version}`);
});

test("the README clones the repository that the package names", () => {
  const url = packageJson.repository.url.replace("git+", "");
  expect(section("Quick start")).toContain(`\ngit clone ${url} && cd ${packageJson.name}\n`);
});

test("the embedding guide and the message to older runtimes name the package's Node, and the same Deno and Bun", async () => {
  const node = packageJson.engines.node.replace(">=", "");
  const source = await Bun.file(join(ROOT, "src/errors.ts")).text();
  const [, versions = ""] = /it needs (.*) or newer/.exec(source) ?? [];

  expect(versions).toStartWith(`Node ${node}, `);
  expect(section("Embed the module")).toContain(versions.replace(", Bun", " and Bun"));
});

test("whatever stops the server leaves it longer than SHUTDOWN_TIMEOUT_MS", async () => {
  const paths = await Array.fromAsync(new Bun.Glob("src/server/kubernetes_*.yaml").scan(ROOT));
  const texts = await Promise.all(paths.map((path) => Bun.file(join(ROOT, path)).text()));
  // Those of a backup and of the shell have no server.
  const manifests = texts.filter((text) => /^kind: (?:Deployment|StatefulSet)$/m.test(text));
  const unit = await Bun.file(join(ROOT, "src/server/systemd/plant-store.service")).text();
  const secondsIn = (text: string, pattern: RegExp) => Number(pattern.exec(text)?.[1]);
  const seconds = [
    secondsIn(unit, /TimeoutStopSec=(\d+)/),
    secondsIn(section("Start a container"), /--stop-timeout (\d+)/),
    ...manifests.map(
      (text) =>
        secondsIn(text, /terminationGracePeriodSeconds: (\d+)/) -
        secondsIn(text, /preStop: \D*(\d+)/),
    ),
  ];

  const { SHUTDOWN_TIMEOUT_MS: preset } = SETTINGS.shutdownTimeoutMs.variables;
  expect(seconds.length).toBeGreaterThan(2);
  expect(seconds.filter((each) => !(each >= Number(preset) / 1_000 + 5))).toEqual([]);
});

/** Each setting as a row: variables, flag, default and meaning. */
const settings = Object.values(SETTINGS).map((setting) => {
  const presets = Object.values(setting.variables);
  const preset = presets.some(Boolean) ? presets.map((each) => each || "none").join(", ") : "none";

  return [
    Object.keys(setting.variables).join(", "),
    setting.flag?.split(" ")[0] ?? "",
    preset,
    setting.meaning,
  ];
});

test("the operating guide's table of settings is the program's", () => {
  const documented = table("Settings").map((cells) => [
    ...cells.slice(0, 3).map(plain),
    ...cells.slice(3),
  ]);
  expect(documented).toEqual(settings);
});

/** A cell without its marks of code. */
function plain(cell: string): string {
  return cell.replaceAll("`", "");
}

const program = declareProgram(async () => {});

test("the operating guide's table of commands is the program's", () => {
  const documented = table("Commands").map(([name = ""]) => plain(name));
  expect(documented).toEqual([...program.commands.map((command) => command.name()), "help"]);
});

/**
 * The calls of the program in the shell's blocks of all guides, without what the shell does around
 * them.
 */
const calls = guides.flatMap(({ path, text }) =>
  Array.from(text.matchAll(/^```(?:sh|ini)\n(.*?)^```/gms), ([, code = ""]) => code)
    .flatMap((code) => code.replaceAll("\\\n", " ").split("\n"))
    .flatMap((line) => line.replace(/(?:^| )#.*$/, "").split(/[|&;]+/))
    .flatMap(
      (part) =>
        /^(?:.*(?:\s|bin\/))?plant-store ((?:[a-z]|--[a-z]).*)$/.exec(part.trim())?.[1] ?? [],
    )
    .map((call) => ({ path, call })),
);

test.each(calls)(
  "$path: plant-store $call names a command and flags that there are",
  ({ call }) => {
    const words = call.split(/\s+/);
    const find = (known: typeof program.commands, name = "") =>
      known.find((command) => command.name() === name);
    const first = find(program.commands, call.startsWith("--") ? "serve" : words.shift());
    const command = first?.commands.length ? find(first.commands, words.shift()) : first;
    const options = command?.options.map(({ long }) => long);
    const flags = words.filter((word) => /^--./.test(word)).map((word) => word.split("=")[0]);
    expect(flags.filter((flag) => !options?.includes(flag))).toEqual([]);
    expect(command).toBeDefined();
  },
);
