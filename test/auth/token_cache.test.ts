import { expect, test } from "bun:test";
import { join } from "node:path";
import { sha256 } from "../../src/adapters/sha256.ts";
import { connect } from "../../src/adapters/sqlite/connection.ts";
import { sqliteDatabase } from "../../src/adapters/sqlite/database.ts";
import { sqliteTokens } from "../../src/adapters/sqlite/tokens.ts";
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
  const path = join(directory.path, "plants.db");
  const database = sqliteDatabase(connect(path));
  const elsewhere = connect(path);
  const store = database.tokens;
  const clock = { now: CREATED.getTime() };
  const dispose = async () => {
    elsewhere.close();
    await database[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  };
  return { store, elsewhere, clock, options: { sha256, now: () => clock.now }, [Symbol.asyncDispose]: dispose };
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

test("tokenCache() reads the stored tokens only when they changed: neither plants nor uses make it", async () => {
  await using given = world();
  await given.store.add(record("greenhouse"));
  let lists = 0;
  const list = () => (lists++, given.store.list());
  const cache = await tokenCache({ ...given.store, list }, given.options);
  cache.authenticate(TOKEN);
  await cache.writeUses();
  given.elsewhere.run("INSERT INTO plants (id, name) VALUES (1, 'Fern')");
  given.elsewhere.run("UPDATE tokens SET last_used_at = 1");
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(1);
  sqliteTokens(given.elsewhere).revoke("greenhouse", CREATED);
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(2);
  sqliteTokens(given.elsewhere).add({ ...record("orchard"), digest: sha256("other") });
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(3);
  await cache.add({ ...record("meadow"), digest: sha256("third") });
  await cache.refresh();
  expect(lists).toBe(4);
});

test("tokenCache() reads again after a reading that failed", async () => {
  await using given = world();
  let isAway = false;
  const list = () => (isAway ? Promise.reject(new Error("away")) : given.store.list());
  const cache = await tokenCache({ ...given.store, list }, given.options);
  await given.store.add(record("greenhouse"));
  isAway = true;
  await expect(cache.refresh()).rejects.toThrow("away");
  isAway = false;
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
});

test("tokenCache() writes uses in pieces of at most 500, and keeps those of the pieces that failed", async () => {
  await using given = world();
  const tokens = Array.from({ length: 1_100 }, (_, i) => `token-${i}`);
  for (const token of tokens) await given.store.add({ ...record(token), digest: sha256(token) });
  const sizes: number[] = [];
  let isFull = true;
  const recordUses: TokenStore["recordUses"] = (uses) => {
    sizes.push(uses.length);
    return isFull && sizes.length > 1 ? Promise.reject(new Error("disk full")) : given.store.recordUses(uses);
  };
  const cache = await tokenCache({ ...given.store, recordUses }, given.options);
  for (const token of tokens) cache.authenticate(token);
  const used = async () => (await given.store.list()).filter(({ lastUsedAt }) => lastUsedAt !== null).length;
  await expect(cache.writeUses()).rejects.toThrow("disk full");
  expect([sizes, await used()]).toEqual([[500, 500], 500]);
  isFull = false;
  await cache.writeUses();
  expect([sizes, await used()]).toEqual([[500, 500, 500, 100], 1_100]);
  await cache.writeUses();
  expect(sizes).toHaveLength(4);
});

test("tokenCache() does not turn back a last use that another server wrote", async () => {
  await using given = world();
  await given.store.add(record("greenhouse"));
  const cache = await tokenCache(given.store, given.options);
  cache.authenticate(TOKEN);
  const later = new Date(CREATED.getTime() + 60_000);
  await given.store.recordUses([{ name: "greenhouse", at: later }]);
  await cache.writeUses();
  expect((await given.store.list())[0]?.lastUsedAt).toEqual(later);
});

test("tokenCache() does not count tokens that are revoked or expired", async () => {
  await using given = world();
  await given.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(given.store, given.options);
  expect(cache.size()).toBe(1);
  given.clock.now += 1_000;
  expect(cache.size()).toBe(0);
});
