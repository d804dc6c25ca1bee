import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./support/program.ts";

const SRC = join(ROOT, "src");
const map = await Bun.file(join(SRC, "README.md")).text();
const named = Array.from(map.matchAll(/`([\w./]+(?:\.ts|\/))`/g), ([, path = ""]) => path);

test("every file and folder that the map of the code names exists", () => {
  expect(named.filter((path) => !existsSync(join(SRC, path)))).toEqual([]);
  expect(named.length).toBeGreaterThan(30);
});

test("every room is on the map of the code", async () => {
  const files = await Array.fromAsync(new Bun.Glob("**/*.ts").scan(SRC));
  const rooms = new Set(
    files.filter((file) => file.includes("/")).map((file) => file.slice(0, file.lastIndexOf("/") + 1)),
  );
  expect([...rooms].filter((room) => !named.includes(room))).toEqual([]);
});
