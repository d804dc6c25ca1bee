import { expect, test } from "bun:test";
import { join } from "node:path";
import { sha256 } from "../../src/adapters/sha256.ts";
import { connect } from "../../src/adapters/sqlite/connection.ts";
import { sqliteDatabase } from "../../src/adapters/sqlite/database.ts";
import { ACCEPTED, refused } from "../../src/auth/authenticate.ts";
import { tokenCache } from "../../src/auth/token_cache.ts";
import { mintToken } from "../../src/auth/tokens.ts";
import type { TokenStore } from "../../src/token_store.ts";
import { emptyDirectory } from "../support/program.ts";

const CREATED = new Date("2026-01-01T00:00:00Z");
const TOKEN = mintToken(sha256);

/** Tokens in a real database, and a clock to set. */
function world() {
  const directory = emptyDirectory();
  const database = sqliteDatabase(connect(join(directory.path, "plants.db")));
  const store = database.tokens;
  const clock = { now: CREATED.getTime() };
  const dispose = async () => {
    await database[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  };
  return { store, clock, options: { sha256, now: () => clock.now }, [Symbol.asyncDispose]: dispose };
}

const record = (name: string, expiresAt: Date | null = null) => ({
  name,
  digest: sha256(TOKEN),
  createdAt: CREATED,
  expiresAt,
});

test("tokenCache() knows fixed tokens and kept ones", async () => {
  await using given = world();
  await given.store.add(record("greenhouse"));
  const cache = await tokenCache(given.store, { ...given.options, fixed: ["fixed-token-0123456"] });
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(cache.authenticate("fixed-token-0123456")).toEqual(ACCEPTED);
  expect(cache.size()).toBe(2);
});

test("tokenCache() tells the log why a token does not count", async () => {
  await using given = world();
  const cache = await tokenCache(given.store, given.options);
  expect(cache.authenticate(TOKEN)).toEqual(refused("unknown"));
  expect(cache.authenticate(`${TOKEN.slice(0, -1)}!`)).toEqual(refused("mistyped"));
});

test("tokenCache() counts a token until the moment it expires", async () => {
  await using given = world();
  await given.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(given.store, given.options);
  given.clock.now += 999;
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  given.clock.now += 1;
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is expired'));
});

test("tokenCache() learns of tokens made and revoked elsewhere when it is refreshed", async () => {
  await using given = world();
  const cache = await tokenCache(given.store, given.options);
  await given.store.add(record("greenhouse"));
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(await given.store.revoke("greenhouse", CREATED)).toBe(true);
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is revoked'));
  expect(await given.store.revoke("greenhouse", CREATED)).toBe(false);
});

test("tokenCache() notes the last use to the minute", async () => {
  await using given = world();
  await given.store.add(record("greenhouse"));
  const cache = await tokenCache(given.store, given.options);
  const lastUse = async () => {
    await cache.writeUses();
    await cache.refresh();
    return (await given.store.list())[0]?.lastUsedAt?.toISOString();
  };
  expect(await lastUse()).toBeUndefined();
  given.clock.now += 90_000;
  cache.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  given.clock.now += 60_000;
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  cache.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:02:00.000Z");
});

test("tokenCache() keeps a new token that counts at once, and refuses a name that is taken", async () => {
  await using given = world();
  const cache = await tokenCache(given.store, given.options);
  expect(await cache.add(record("greenhouse"))).toBe(true);
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(await cache.add({ ...record("greenhouse"), digest: sha256("other") })).toBe(false);
  expect(cache.authenticate("other")).toEqual(refused("unknown"));
});

test("tokenCache() keeps the uses that could not be written, and reads revocations all the same", async () => {
  await using given = world();
  await given.store.add(record("greenhouse"));
  let isFull = true;
  const recordUses: TokenStore["recordUses"] = (uses) =>
    isFull ? Promise.reject(new Error("disk full")) : given.store.recordUses(uses);
  const cache = await tokenCache({ ...given.store, recordUses }, given.options);
  cache.authenticate(TOKEN);
  await expect(cache.writeUses()).rejects.toThrow("disk full");
  isFull = false;
  await cache.writeUses();
  expect((await given.store.list())[0]?.lastUsedAt).toEqual(CREATED);

  isFull = true;
  given.clock.now += 60_000;
  cache.authenticate(TOKEN);
  await given.store.revoke("greenhouse", CREATED);
  await Promise.allSettled([cache.writeUses(), cache.refresh()]);
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is revoked'));
});

test("tokenCache() does not count tokens that are revoked or expired", async () => {
  await using given = world();
  await given.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(given.store, given.options);
  expect(cache.size()).toBe(1);
  given.clock.now += 1_000;
  expect(cache.size()).toBe(0);
});
