import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import * as fc from "fast-check";
import { allTokens, toTokenColumns } from "../../../src/database/sqlite/token_columns.ts";
import { openSqliteWorker } from "../../../src/database/sqlite/worker_client.ts";
import { SCOPES } from "../../../src/auth/authenticate.ts";
import type { TokenRecord } from "../../../src/auth/token_store.ts";
import { makeTokens } from "../../bench/prefilled.ts";
import { emptyDirectory, memoryDirectory, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { anyCharacter } from "../../support/unicode.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const time = fc.date({ noInvalidDate: true });
const token = fc.record({
  name: fc.string({ unit: anyCharacter }),
  digest: fc.uint8Array({ minLength: 32, maxLength: 32 }),
  createdAt: time,
  expiresAt: fc.option(time),
  revokedAt: fc.option(time),
  lastUsedAt: fc.option(time),
  scopes: fc.subarray([...SCOPES]),
});

test("allTokens() gives the tokens of all pages, exactly, and oldest first", async () => {
  const pages = fc.array(fc.array(token), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(pages, async (pages) => {
      const pageAfter = async (row: bigint) => {
        const page = pages[Number(row)];
        return structuredClone(toTokenColumns({ tokens: page ?? [], last: page && row + 1n }));
      };
      const oldestFirst = pages.flat().toSorted((one, other) => +one.createdAt - +other.createdAt);
      const tokens = await allTokens(pageAfter);
      expect(tokens.map(({ createdAt }) => createdAt)).toEqual(oldestFirst.map(({ createdAt }) => createdAt));
      expect(new Set(tokens.map(identity))).toEqual(new Set(oldestFirst.map(identity)));
    }),
  );
});

test("a Worker's list has every token of several pages, once", async () => {
  using directory = emptyDirectory(memoryDirectory());
  makeTokens(directory.path, 2_500);
  await using database = await openSqliteWorker(join(directory.path, "plants.db"));
  const names = (await database.tokens.list()).map(({ name }) => name);
  expect(names).toHaveLength(2_500);
  expect(new Set(names).size).toBe(2_500);
});

function identity({ digest, ...token }: TokenRecord): string {
  return JSON.stringify({ ...token, digest: digest.toHex() });
}
