import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { sha256 } from "../../src/auth/sha256.ts";
import { connect } from "../../src/database/sqlite/connection.ts";
import { sqliteDatabase } from "../../src/database/sqlite/database.ts";
import { memoryDatabase } from "../../src/database/memory.ts";
import { accepted, ACCEPTED, refused, type Scope, SCOPES } from "../../src/auth/authenticate.ts";
import { tokenCache } from "../../src/auth/token_cache.ts";
import { mintToken } from "../../src/auth/tokens.ts";
import type { TokenStore } from "../../src/auth/token_store.ts";
import { emptyDirectory, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const CREATED = new Date("2026-01-01T00:00:00Z");
const TOKEN = mintToken(sha256);

/** Tokens in a real database, and a clock to set. */
function tokenFixture() {
  const directory = emptyDirectory();
  const path = join(directory.path, "plants.db");
  const database = sqliteDatabase(connect(path));
  const elsewhere = connect(path);
  const store = database.tokens;
  const clock = { now: CREATED.getTime() };
  /** Stores tokens by themselves as names, in one transaction, each a millisecond younger than the one before. */
  const addAll = (tokens: readonly string[]) => {
    const insert = elsewhere.prepare("INSERT INTO tokens (name, digest, created_at) VALUES (?, ?, ?)");
    elsewhere.transaction(() =>
      tokens.forEach((token, i) => insert.run(token, sha256(token), CREATED.getTime() + i)),
    )();
  };
  const dispose = async () => {
    elsewhere.close();
    await database[Symbol.asyncDispose]();
    directory[Symbol.dispose]();
  };
  return { store, elsewhere, addAll, clock, options: { sha256, now: () => clock.now }, [Symbol.asyncDispose]: dispose };
}

const record = (name: string, expiresAt: Date | null = null, scopes: readonly Scope[] = SCOPES) => ({
  name,
  digest: sha256(TOKEN),
  createdAt: CREATED,
  expiresAt,
  scopes,
});

test("tokenCache() accepts static tokens and stored ones", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  const cache = await tokenCache(fixture.store, { ...fixture.options, staticTokens: ["static-token-0123456"] });
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(cache.authenticate("static-token-0123456")).toEqual(ACCEPTED);
  expect(cache.size()).toBe(2);
});

test("a stored token that cannot be read fails every refresh, and not the first one only", async () => {
  await using fixture = tokenFixture();
  let isReadable = true;
  const list = async () => {
    const [stored] = await fixture.store.list();
    // As of a date that somebody has written into the database by hand.
    return stored === undefined ? [] : [isReadable ? stored : { ...stored, expiresAt: Number.POSITIVE_INFINITY }];
  };
  const cache = await tokenCache({ ...fixture.store, list } as unknown as TokenStore, fixture.options);
  await fixture.store.add(record("greenhouse"));
  isReadable = false;
  for (let refresh = 0; refresh < 2; refresh++) await expect(cache.refresh()).rejects.toThrow(TypeError);
  isReadable = true;
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
});

test("tokenCache() accepts a token for the scopes that it was stored with, and a static one for all", async () => {
  const { tokens } = memoryDatabase();
  await tokens.add({ ...record("scraper", null, ["metrics"]), digest: sha256("scraper") });
  await tokens.add({ ...record("garden", null, ["write"]), digest: sha256("garden") });
  await tokens.add({ ...record("both", null, ["metrics", "write"]), digest: sha256("both") });
  const cache = await tokenCache(tokens, { sha256, staticTokens: ["static"] });
  expect(cache.authenticate("scraper")).toEqual(accepted(["metrics"]));
  expect(cache.authenticate("garden")).toEqual(accepted(["write"]));
  for (const token of ["both", "static"]) expect(cache.authenticate(token)).toBe(ACCEPTED);
  // Nothing is made for a request.
  expect(cache.authenticate("garden")).toBe(cache.authenticate("garden"));
});

test("tokenCache() logs why a token is refused", async () => {
  await using fixture = tokenFixture();
  const cache = await tokenCache(fixture.store, fixture.options);
  expect(cache.authenticate(TOKEN)).toEqual(refused("unknown"));
  expect(cache.authenticate(`${TOKEN.slice(0, -1)}!`)).toEqual(refused("mistyped"));
});

test("tokenCache() accepts a token until the moment it expires", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(fixture.store, fixture.options);
  fixture.clock.now += 999;
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  fixture.clock.now += 1;
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is expired'));
});

test("tokenCache() learns of tokens made and revoked elsewhere when it is refreshed", async () => {
  await using fixture = tokenFixture();
  const cache = await tokenCache(fixture.store, fixture.options);
  await fixture.store.add(record("greenhouse"));
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(await fixture.store.revoke("greenhouse", CREATED)).toBe(true);
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is revoked'));
  expect(await fixture.store.revoke("greenhouse", CREATED)).toBe(false);
});

test("tokenCache() records the last use to the minute", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  const cache = await tokenCache(fixture.store, fixture.options);
  const lastUse = async () => {
    await cache.writeUses();
    await cache.refresh();
    return (await fixture.store.list())[0]?.lastUsedAt?.toISOString();
  };
  expect(await lastUse()).toBeUndefined();
  fixture.clock.now += 90_000;
  cache.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  fixture.clock.now += 60_000;
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  cache.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:02:00.000Z");
});

test("tokenCache() stores a new token that is accepted at once, and refuses a name that is taken", async () => {
  await using fixture = tokenFixture();
  const cache = await tokenCache(fixture.store, fixture.options);
  expect(await cache.add(record("greenhouse"))).toBe(true);
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
  expect(await cache.add({ ...record("greenhouse"), digest: sha256("other") })).toBe(false);
  expect(cache.authenticate("other")).toEqual(refused("unknown"));
});

test("tokenCache() keeps the uses that could not be written, and reads revocations all the same", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  let isFull = true;
  const recordUses: TokenStore["recordUses"] = (uses) =>
    isFull ? Promise.reject(new Error("disk full")) : fixture.store.recordUses(uses);
  const cache = await tokenCache({ ...fixture.store, recordUses }, fixture.options);
  cache.authenticate(TOKEN);
  await expect(cache.writeUses()).rejects.toThrow("disk full");
  isFull = false;
  await cache.writeUses();
  expect((await fixture.store.list())[0]?.lastUsedAt).toEqual(CREATED);

  isFull = true;
  fixture.clock.now += 60_000;
  cache.authenticate(TOKEN);
  await fixture.store.revoke("greenhouse", CREATED);
  await Promise.allSettled([cache.writeUses(), cache.refresh()]);
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is revoked'));
});

test("tokenCache() reads the stored tokens only when they changed: neither plants nor uses make it", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  let lists = 0;
  const list = () => (lists++, fixture.store.list());
  const cache = await tokenCache({ ...fixture.store, list }, fixture.options);
  cache.authenticate(TOKEN);
  await cache.writeUses();
  fixture.elsewhere.run("INSERT INTO plants (id, name) VALUES (1, 'Fern')");
  const { tokens } = sqliteDatabase(fixture.elsewhere);
  fixture.elsewhere.run("UPDATE tokens SET last_used_at = 1");
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(1);
  await tokens.revoke("greenhouse", CREATED);
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(2);
  await tokens.add({ ...record("orchard"), digest: sha256("other") });
  for (let i = 0; i < 3; i++) await cache.refresh();
  expect(lists).toBe(3);
  await cache.add({ ...record("meadow"), digest: sha256("third") });
  await cache.refresh();
  expect(lists).toBe(4);
});

test("tokenCache() reads again after a reading that failed", async () => {
  await using fixture = tokenFixture();
  let isAway = false;
  const list = () => (isAway ? Promise.reject(new Error("away")) : fixture.store.list());
  const cache = await tokenCache({ ...fixture.store, list }, fixture.options);
  await fixture.store.add(record("greenhouse"));
  isAway = true;
  await expect(cache.refresh()).rejects.toThrow("away");
  isAway = false;
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
});

test("tokenCache() writes uses in pieces of at most 500, and keeps those of the pieces that failed", async () => {
  await using fixture = tokenFixture();
  const tokens = Array.from({ length: 1_100 }, (_, i) => `token-${i}`);
  fixture.addAll(tokens);
  const sizes: number[] = [];
  let isFull = true;
  const recordUses: TokenStore["recordUses"] = (uses) => {
    sizes.push(uses.length);
    return isFull && sizes.length > 1 ? Promise.reject(new Error("disk full")) : fixture.store.recordUses(uses);
  };
  const cache = await tokenCache({ ...fixture.store, recordUses }, fixture.options);
  for (const token of tokens) cache.authenticate(token);
  const used = async () => (await fixture.store.list()).filter(({ lastUsedAt }) => lastUsedAt !== null).length;
  await expect(cache.writeUses()).rejects.toThrow("disk full");
  expect([sizes, await used()]).toEqual([[500, 500], 500]);
  isFull = false;
  await cache.writeUses();
  expect([sizes, await used()]).toEqual([[500, 500, 500, 100], 1_100]);
  await cache.writeUses();
  expect(sizes).toHaveLength(4);
});

test("tokenCache() does not turn back a last use that another server wrote", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  const cache = await tokenCache(fixture.store, fixture.options);
  cache.authenticate(TOKEN);
  const later = new Date(CREATED.getTime() + 60_000);
  await fixture.store.recordUses([{ name: "greenhouse", at: later }]);
  await cache.writeUses();
  expect((await fixture.store.list())[0]?.lastUsedAt).toEqual(later);
});

test("tokenCache() finds each of many tokens, and refuses what is none of them", async () => {
  await using fixture = tokenFixture();
  const tokens = Array.from({ length: 1_000 }, () => mintToken(sha256));
  fixture.addAll(tokens);
  const cache = await tokenCache(fixture.store, fixture.options);
  expect(new Set(tokens.map(cache.authenticate))).toEqual(new Set([ACCEPTED]));
  for (const token of tokens) expect(cache.authenticate(`${token.slice(0, -1)}!`)).toEqual(refused("mistyped"));
  expect(cache.size()).toBe(1_000);
});

test("tokenCache() follows the stored token where a static one is the same: revoking it ends both", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse"));
  const cache = await tokenCache(fixture.store, { ...fixture.options, staticTokens: [TOKEN] });
  expect([cache.authenticate(TOKEN), cache.size()]).toEqual([ACCEPTED, 1]);
  await fixture.store.revoke("greenhouse", CREATED);
  await cache.refresh();
  expect([cache.authenticate(TOKEN), cache.size()]).toEqual([refused('"greenhouse" is revoked'), 0]);
});

test("tokenCache() lets each token expire at its own time, and reads nothing for it", async () => {
  await using fixture = tokenFixture();
  let lists = 0;
  const list = () => (lists++, fixture.store.list());
  for (const [i, name] of ["third", "first", "second"].entries()) {
    const expiresAt = new Date(CREATED.getTime() + 1_000 * ([3, 1, 2][i] ?? 0));
    await fixture.store.add({ ...record(name, expiresAt), digest: sha256(name) });
  }
  const cache = await tokenCache({ ...fixture.store, list }, fixture.options);
  for (const accepted of [2, 1, 0]) {
    fixture.clock.now += 1_000;
    await cache.refresh();
    expect(cache.size()).toBe(accepted);
  }
  expect(["first", "second", "third"].map(cache.authenticate)).toEqual(
    ["first", "second", "third"].map((name) => refused(`"${name}" is expired`)),
  );
  expect(lists).toBe(1);
});

test("tokenCache() accepts an expired token again when the clock was wrong, and is set back", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(fixture.store, fixture.options);
  fixture.clock.now += 3_600_000;
  await cache.refresh();
  expect(cache.authenticate(TOKEN)).toEqual(refused('"greenhouse" is expired'));
  fixture.clock.now -= 3_600_000;
  expect(cache.authenticate(TOKEN)).toEqual(ACCEPTED);
});

test("tokenCache() remembers the names of the 10,000 revoked tokens that were created last", async () => {
  await using fixture = tokenFixture();
  const tokens = Array.from({ length: 10_002 }, (_, i) => `token-${i}`);
  fixture.addAll(tokens);
  fixture.elsewhere.run("UPDATE tokens SET revoked_at = 1");
  const cache = await tokenCache(fixture.store, fixture.options);
  expect(["token-0", "token-1", "token-2", "token-10001"].map(cache.authenticate)).toEqual([
    refused("unknown"),
    refused("unknown"),
    refused('"token-2" is revoked'),
    refused('"token-10001" is revoked'),
  ]);
});

test("tokenCache() does not count tokens that are revoked or expired in its size", async () => {
  await using fixture = tokenFixture();
  await fixture.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const cache = await tokenCache(fixture.store, fixture.options);
  expect(cache.size()).toBe(1);
  fixture.clock.now += 1_000;
  expect(cache.size()).toBe(0);
});
