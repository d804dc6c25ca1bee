import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, existsSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { openSqliteWorker } from "../../../src/database/sqlite/worker_client.ts";
import { type Damage, damage, makeLargeDatabase } from "../../support/damage.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const REPLACEMENTS: [string, (path: string) => void][] = [
  ["a damaged one", (path) => damage(path, "a zeroed page in the middle" satisfies Damage)],
  ["text", (path) => writeFileSync(path, "This is no database.".repeat(100))],
  ["a sound one", () => {}],
];

const large = emptyDirectory();
beforeAll(() => makeLargeDatabase(join(large.path, "plants.db"), 30_000));
afterAll(() => large[Symbol.dispose]());

test.concurrent.each(REPLACEMENTS)(
  "the check beside a server says nothing of a file that was replaced by %s",
  async (_, make) => {
    using directory = emptyDirectory();
    const [path, other] = [`${directory.path}/plants.db`, `${directory.path}/other.db`];
    for (const copy of [path, other]) copyFileSync(join(large.path, "plants.db"), copy);
    make(other);
    const warning = Promise.withResolvers<unknown[]>();
    const messages: string[] = [];
    await using database = await openSqliteWorker(path, {
      onWarning: (...problem) => warning.resolve(problem),
      onInfo: (message) => void messages.push(message),
    });
    renameSync(other, path);
    const failed = database.failed.then(({ message }) => [message]);
    expect(await Promise.race([warning.promise, failed])).toEqual([
      "Integrity check not finished",
      "the file was removed or replaced",
    ]);
    expect(messages).toEqual(["Integrity check started"]);
    await expect(database.plants.probe()).rejects.toThrow("storage is gone; send the plant again later");
    expect(existsSync(`${path}-damaged`)).toBe(false);
  },
);
