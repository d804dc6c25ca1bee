import { expect, setDefaultTimeout, test } from "bun:test";

import { repositoryCopy } from "../support/mutant.ts";
import { LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { commitCopy, failuresOfOk, linkPackages } from "./clone.ts";

setDefaultTimeout(4 * LONG_TEST_TIMEOUT_MS);

/** Writes the migrations of a renamed field on a terminal, and chooses that its column was renamed. */
async function renameColumn(root: string, name: string): Promise<void> {
  let printed = "";
  let asked = "";
  const decoder = new TextDecoder();
  const run = Bun.spawn(["bun", "run", "db:generate", "--name", name], {
    cwd: root,
    terminal: {
      cols: 100,
      rows: 40,
      data(terminal, bytes) {
        const text = Bun.stripANSI(decoder.decode(bytes, { stream: true }));
        printed += text;
        asked += text;
        const isCreating = /❯ \+ .*create column/.test(asked);
        if (!isCreating && !/❯ ~ .*rename column/.test(asked)) return;
        asked = "";
        terminal.write(isCreating ? "\u001B[B" : "\r");
      },
    },
  });
  if ((await run.exited) !== 0) throw new Error(printed);
}

test("with another record and other fields, all that `bun run ok` runs is green", async () => {
  using copy = repositoryCopy();
  linkPackages(copy.path);
  const run = await commitCopy(copy.path);

  await run("bun src/recipes/rename.ts meter meters /meter-events");
  await run("git add --all && git apply --ignore-whitespace src/recipes/field.patch");
  await run("bun run db:generate --name fields");
  for (const [from, to] of Object.entries({ name: "label", tag: "unit" })) {
    await run(`bun src/recipes/rename_field.ts ${from} ${to}`);
    await renameColumn(copy.path, to);
  }
  await run("git add --all && bun test/database/fixtures/make.ts");
  await run("bun test/program/compatibility.ts && bun run fmt");

  expect(await failuresOfOk(copy.path)).toEqual([]);
  const { stdout } = await Bun.$`git grep --ignore-case --name-only plant -- . :!LICENSE`
    .cwd(copy.path)
    .quiet()
    .nothrow();
  expect(stdout.toString()).toBe("");
});

test("a name that the code uses is reported, and a wrong one refused", async () => {
  using copy = repositoryCopy();
  await commitCopy(copy.path);
  const rename = (...names: string[]) =>
    Bun.$`bun src/recipes/rename.ts ${names}`.cwd(copy.path).quiet().nothrow();

  const refused = await rename("Meter", "meters", "/meters");
  expect([refused.exitCode, refused.stderr.toString()]).toEqual([
    2,
    expect.stringMatching(/^Usage: bun src\/recipes\/rename.ts NOUN PLURAL \/PATH\n/),
  ]);

  const clashing = await rename("token", "tokens", "/tokens");
  expect(clashing.exitCode).not.toBe(0);
  expect(clashing.stdout.toString()).toMatch(/^"tokens" is already in src\/\S+ and \d+ more: /m);
});
