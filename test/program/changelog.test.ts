import { expect, test } from "bun:test";
import { join } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { ROOT } from "../support/program.ts";

const changelog = await Bun.file(join(ROOT, "CHANGELOG.md")).text();
const [, ...versions] = changelog.split(/^## /m);
const titles = versions.map((text) => text.slice(0, text.indexOf("\n")));

test("the changelog's newest release is the version of the package", () => {
  const newest = titles.find((title) => title !== "Unreleased") ?? "";
  expect(newest.split(" - ")[0]).toBe(packageJson.version);
});

test("the changelog's titles are versions with their dates, the newest first, after what is unreleased", () => {
  const isVersion = (title: string) => /^\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}$/.test(title);
  expect(titles.filter((title, index) => !isVersion(title) && !(index === 0 && title === "Unreleased"))).toEqual([]);
  for (const version of versions) expect(version.slice(version.indexOf("\n")).trim()).toStartWith("### ");
});

test("what is unreleased begins with at most five highlights, of at most two sentences", () => {
  const [highlights = ""] = (changelog.split("## Unreleased\n")[1] ?? "").split(/^### (?!Highlights)/m);
  const bullets = highlights.split(/^- /m).slice(1);
  expect(bullets.length).toBeWithin(1, 6);
  for (const bullet of bullets) expect(bullet.split(/\.(?:\*\*)?\s/).filter(Boolean).length, bullet).toBeLessThan(4);
});
