import { expect, test } from "bun:test";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { ERRORS, statusOf, type ErrorCode } from "../../src/errors.ts";
import { ROOT } from "../support/program.ts";

const readme = await Bun.file(join(ROOT, "README.md")).text();
const rows = Array.from(readme.matchAll(/^\|(.+)\|$/gm), ([, row = ""]) => row.split("|").map((cell) => cell.trim()));

test("the README's response table is the program's", () => {
  const documented = rows
    .filter(([, status, error]) => /^[45]\d\d$/.test(status ?? "") && error !== "")
    .map(([, status, error]) => [status, error]);
  const real = (Object.keys(ERRORS) as ErrorCode[]).map((code) => [String(statusOf(code)), String(ERRORS[code].error)]);
  expect(documented).toEqual(real);
});

test("the README names the pinned Bun, and no other", () => {
  const versions = new Set(Array.from(readme.matchAll(/\bbun@(\d+\.\d+\.\d+)/g), ([, version]) => version));
  expect([...versions]).toEqual([packageJson.engines.bun]);
  expect(packageJson.packageManager).toBe(`bun@${packageJson.engines.bun}`);
  expect(Bun.version).toBe(packageJson.engines.bun);
});

test("every variable of the configuration is in the README", async () => {
  const config = await Bun.file(join(ROOT, "src/commands/config.ts")).text();
  const variables = new Set(
    Array.from(config.matchAll(/"([A-Z]+(?:_[A-Z]+)*)"/g), ([, name]) => name).filter((name) => name !== undefined),
  );
  const documented = rows.flatMap(([first = ""]) => Array.from(first.matchAll(/`([A-Z_]+)`/g), ([, name]) => name));
  expect([...variables].filter((name) => !documented.includes(name))).toEqual([]);
  expect(variables.size).toBeGreaterThan(8);
});
