import { expect, spyOn, test } from "bun:test";
import { hash } from "node:crypto";

import { eventLoopTurn } from "../../src/async/timers.ts";
import { accepted, refused, SCOPES } from "../../src/auth/authenticate.ts";
import { type TokenCache, tokenCache } from "../../src/auth/token_cache.ts";
import { mintToken, unknownToken } from "../../src/auth/token_format.ts";
import type { NewToken } from "../../src/auth/token_store.ts";
import { memoryTokens } from "../../src/database/memory.ts";
import { connect } from "../../src/database/sqlite/bun_driver.ts";
import { sqliteDatabase } from "../../src/database/sqlite/sqlite_database.ts";
import type { PlantStoreError } from "../../src/errors.ts";
import { fern, insertOf } from "../support/plants.ts";
import { emptyDirectory } from "../support/program.ts";

const CREATED = new Date("2026-01-01T00:00:00Z");
const UNKNOWN = unknownToken("another");

/** A stored token that is called what it is. */
function record(name: string, changes: Partial<NewToken> = {}): NewToken {
  return {
    name,
    digest: hash("sha256", name, "buffer"),
    createdAt: CREATED,
    expiresAt: null,
    scopes: SCOPES,
    ...changes,
  };
}

function after(milliseconds: number): Date {
  return new Date(CREATED.getTime() + milliseconds);
}

/** A store with these tokens, and a clock to set. */
async function tokenFixture(...records: readonly NewToken[]) {
  const tokens = memoryTokens();
  for (const each of records) await tokens.add(each);
  const fixture = {
    tokens,
    now: CREATED.getTime(),
    monotonic: 0,
    cache: (staticTokens: readonly string[] = [], maxAgeMs?: number) =>
      tokenCache(tokens, {
        staticTokens,
        now: () => fixture.now,
        monotonic: () => fixture.monotonic,
        ...(maxAgeMs !== undefined && { maxAgeMs }),
      }),
    /** When each token was last used, as the store has it. */
    lastUses: async () => (await tokens.list()).map(({ lastUsedAt }) => lastUsedAt),
  };

  return fixture;
}

test("tokenCache() accepts a stored token for its scopes, a static one for all, and no other", async () => {
  const { cache } = await tokenFixture(
    record("scraper", { scopes: ["metrics"] }),
    record("garden", { scopes: ["write"] }),
    record("both", { scopes: ["metrics", "write"] }),
  );
  const { authenticate, size } = await cache(["token-of-an-operator"]);
  expect(authenticate("scraper")).toEqual(accepted("scraper", ["metrics"]));
  expect(authenticate("garden")).toEqual(accepted("garden", ["write"]));
  expect(authenticate("both")).toEqual(accepted("both", ["write", "metrics"]));
  expect(authenticate("token-of-an-operator")).toEqual(accepted("static:1"));
  for (const token of ["another", mintToken().token, `${mintToken().token.slice(0, -1)}!`])
    expect(authenticate(token)).toEqual(unknownToken(token));
  expect(size()).toBe(4);
  // Nothing is made for a request.
  expect(authenticate("garden")).toBe(authenticate("garden"));
});

test("tokenCache() takes tokens of up to 8,192 characters, and refuses longer ones unhashed", async () => {
  const longest = "x".repeat(8_192);
  const { authenticate } = await (
    await tokenFixture(record(longest), record(`${longest}x`))
  ).cache();
  expect(authenticate(longest)).toEqual(accepted(longest));
  expect(authenticate(`${longest}x`)).toEqual(unknownToken(`${longest}x`));
});

test("tokenCache() accepts and counts a token until the moment it expires, and again if the clock is set back", async () => {
  const fixture = await tokenFixture(record("greenhouse", { expiresAt: after(1_000) }));
  const cache = await fixture.cache();

  for (const [milliseconds, verdict, size] of [
    [999, accepted("greenhouse"), 1],
    [1_000, refused('"greenhouse" is expired'), 0],
    [3_600_000, refused('"greenhouse" is expired'), 0],
    [0, accepted("greenhouse"), 1],
  ] as const) {
    fixture.now = after(milliseconds).getTime();
    await cache.refresh();
    expect([cache.authenticate("greenhouse"), cache.size()]).toEqual([verdict, size]);
  }
});

test("tokenCache() knows which of the tokens in use expires next", async () => {
  const hour = 3_600_000;
  const fixture = await tokenFixture(
    record("unused", { expiresAt: after(hour) }),
    record("forever"),
    record("soon", { expiresAt: after(30 * hour) }),
    record("later", { expiresAt: after(90 * hour) }),
  );
  const cache = await fixture.cache(["static-token-0123456789"]);
  const next = async (hours: number, ...used: string[]) => {
    fixture.now = after(hours * hour).getTime();
    await cache.refresh();
    for (const token of used) expect(cache.authenticate(token)).toMatchObject({ ok: true });
    return cache.nextExpiry();
  };

  const later = { name: "later", expiresAt: after(90 * hour).getTime() };
  const soon = { name: "soon", expiresAt: after(30 * hour).getTime() };
  expect(await next(0)).toBeUndefined();
  expect(await next(0, "forever", "static-token-0123456789")).toBeUndefined();
  expect(await next(0, "later")).toMatchObject(later);
  // A use that is not written yet outlasts a change of other tokens.
  await fixture.tokens.add(record("another"));
  expect(await next(0)).toMatchObject(later);
  expect(await next(0, "soon")).toMatchObject(soon);
  expect(await next(1, "later")).toMatchObject(soon);
  // Not used for a day: its clients have another one.
  expect(await next(25)).toBeUndefined();
  expect(await next(25, "soon", "later")).toMatchObject(soon);
  // A server that starts now knows it from the store, before a client comes.
  await cache.writeUses();
  expect((await fixture.cache()).nextExpiry()).toMatchObject(soon);
  await fixture.tokens.revoke("soon", after(26 * hour));
  expect(await next(26)).toMatchObject(later);
  expect(await next(90)).toBeUndefined();
});

test("tokenCache() learns of tokens made and revoked elsewhere when it is refreshed, and reads only then", async () => {
  const fixture = await tokenFixture(record("first"));
  const list = spyOn(fixture.tokens, "list");
  const cache = await fixture.cache();
  cache.authenticate("first");
  await cache.writeUses();

  for (const [change, verdicts] of [
    [async () => {}, [accepted("first"), UNKNOWN]],
    [() => fixture.tokens.add(record("second")), [accepted("first"), accepted("second")]],
    [
      () => fixture.tokens.revoke("first", CREATED),
      [refused('"first" is revoked'), accepted("second")],
    ],
    [() => fixture.tokens.delete("first"), [UNKNOWN, accepted("second")]],
  ] as const) {
    await change();
    for (let i = 0; i < 3; i++) await cache.refresh();
    expect(["first", "second"].map(cache.authenticate)).toEqual([...verdicts]);
  }

  expect(list).toHaveBeenCalledTimes(4);
});

test("tokenCache() reads nothing again when another process stores plants or uses in SQLite", async () => {
  using directory = emptyDirectory();
  const path = directory.at("plants.db");
  await using database = sqliteDatabase(connect(path));
  using elsewhere = connect(path);
  const list = spyOn(database.tokens, "list");
  const cache = await tokenCache(database.tokens);

  elsewhere.run(insertOf(fern()));
  elsewhere.run("UPDATE tokens SET last_used_at = 1");
  await cache.refresh();
  expect(list).toHaveBeenCalledTimes(1);
});

test("tokenCache() stores a new token that is accepted at once, and refuses a name that is taken", async () => {
  const cache = await (await tokenFixture()).cache();
  expect(await cache.add(record("greenhouse"))).toBe(true);
  expect(cache.authenticate("greenhouse")).toEqual(accepted("greenhouse"));
  expect(await cache.add(record("greenhouse", { digest: hash("sha256", "other", "buffer") }))).toBe(
    false,
  );
  expect(cache.authenticate("other")).toEqual(UNKNOWN);
});

test("tokenCache() prefers the stored token to an equal static one: revoking it ends both", async () => {
  const fixture = await tokenFixture(record("greenhouse-token"));
  const cache = await fixture.cache(["greenhouse-token"]);
  expect([cache.authenticate("greenhouse-token"), cache.size()]).toEqual([
    accepted("greenhouse-token"),
    1,
  ]);

  await fixture.tokens.revoke("greenhouse-token", CREATED);
  await cache.refresh();
  expect([cache.authenticate("greenhouse-token"), cache.size()]).toEqual([
    refused('"greenhouse-token" is revoked'),
    0,
  ]);
});

// Failures

test.each([
  ["that fails", () => Promise.reject(new TypeError("away"))],
  // As of a date that somebody has written into the database by hand.
  [
    "of a token that cannot be read",
    async () => [{ ...record("greenhouse"), expiresAt: Infinity }] as never,
  ],
])("after a reading %s, every refresh reads again until one succeeds", async (_, read) => {
  const fixture = await tokenFixture();
  const cache = await fixture.cache();
  await fixture.tokens.add(record("greenhouse"));
  const list = spyOn(fixture.tokens, "list").mockImplementation(read);
  for (let refresh = 0; refresh < 2; refresh++)
    await expect(cache.refresh()).rejects.toThrow(TypeError);

  list.mockRestore();
  await cache.refresh();
  expect(cache.authenticate("greenhouse")).toEqual(accepted("greenhouse"));
});

// Age

/** What a cache says of a token, in a word or two. */
function verdictOn({ authenticate }: Pick<TokenCache, "authenticate">, token: string): string {
  try {
    const verdict = authenticate(token);
    return verdict.ok ? "accepted" : verdict.reason;
  } catch (error) {
    const { code, reason } = error as PlantStoreError;
    return `${code}: ${reason}`;
  }
}

const UNAVAILABLE = "queue_full: tokens unavailable";

test("tokenCache() accepts a stored token that may write for as long as the tokens are current, and asks nobody for others", async () => {
  const fixture = await tokenFixture(
    record("both"),
    record("garden", { scopes: ["write"] }),
    record("scraper", { scopes: ["metrics"] }),
    record("stored-static-token"),
    record("revoked"),
    record("expired", { expiresAt: CREATED }),
  );
  await fixture.tokens.revoke("revoked", CREATED);
  const cache = await fixture.cache(["stored-static-token", "token-of-an-operator"], 5_000);
  const { token: ours } = mintToken();
  const revision = spyOn(fixture.tokens, "revision").mockReturnValue(new Promise(() => {}));

  for (const [age, verdict, unknown] of [
    [5_000, "accepted", "unknown"],
    [5_001, UNAVAILABLE, UNAVAILABLE],
    [86_400_000, UNAVAILABLE, UNAVAILABLE],
  ] as const) {
    fixture.monotonic = age;
    for (const [token, expected] of [
      ["both", verdict],
      ["garden", verdict],
      ["stored-static-token", verdict],
      ["scraper", "accepted"],
      ["token-of-an-operator", "accepted"],
      ["revoked", '"revoked" is revoked'],
      ["expired", '"expired" is expired'],
      ["another", "unknown"],
      // It may have been created since.
      [ours, unknown],
    ] as const)
      expect([age, token, verdictOn(cache, token)]).toEqual([age, token, expected]);
  }
  expect(revision).toHaveBeenCalledTimes(1);
});

test("tokenCache() accepts tokens of any age unless it is told otherwise", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const cache = await fixture.cache();
  fixture.monotonic = Number.MAX_SAFE_INTEGER;
  expect(verdictOn(cache, "greenhouse")).toBe("accepted");
});

test("tokenCache() counts the age of tokens from the beginning of the reading that found them", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const cache = await fixture.cache([], 5_000);

  // Revoked while the response is on its way.
  const revision = spyOn(fixture.tokens, "revision").mockImplementationOnce(async () => {
    fixture.monotonic += 4_000;
    return "1";
  });
  await cache.refresh();
  revision.mockRestore();

  fixture.monotonic += 1_000;
  expect(verdictOn(cache, "greenhouse")).toBe("accepted");
  fixture.monotonic += 1;
  expect(verdictOn(cache, "greenhouse")).toBe(UNAVAILABLE);
});

test("tokenCache() reads the tokens for the first request after a pause, once, and again after a failure", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const cache = await fixture.cache([], 5_000);
  const revision = spyOn(fixture.tokens, "revision").mockRejectedValueOnce(new Error("away"));
  fixture.monotonic = 5_001;

  for (let request = 0; request < 3; request++)
    expect(verdictOn(cache, "greenhouse")).toBe(UNAVAILABLE);
  expect(revision).toHaveBeenCalledTimes(1);

  await eventLoopTurn();
  for (let request = 0; request < 3; request++)
    expect(verdictOn(cache, "greenhouse")).toBe(UNAVAILABLE);
  await eventLoopTurn();
  expect(verdictOn(cache, "greenhouse")).toBe("accepted");
  expect(revision).toHaveBeenCalledTimes(2);
});

test("tokenCache() refreshes once for all who ask during a refresh, which may have missed the latest change", async () => {
  const fixture = await tokenFixture();
  const cache = await fixture.cache();
  const reading = Promise.withResolvers<string>();
  const revision = spyOn(fixture.tokens, "revision").mockReturnValueOnce(reading.promise);
  const first = cache.refresh();
  const added = cache.add(record("greenhouse"));
  const others = [cache.refresh(), cache.refresh()];

  reading.reject(new Error("away"));
  await expect(first).rejects.toThrow("away");
  expect(await added).toBe(true);
  expect(verdictOn(cache, "greenhouse")).toBe("accepted");
  await Promise.all(others);
  expect(revision).toHaveBeenCalledTimes(2);
});

// Uses

test("tokenCache() records the last use to the minute", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const cache = await fixture.cache();

  for (const [minutes, token, lastUse] of [
    [0, "another", null],
    [1.5, "greenhouse", after(60_000)],
    [2.5, "another", after(60_000)],
    [2.5, "greenhouse", after(120_000)],
  ] as const) {
    fixture.now = after(minutes * 60_000).getTime();
    cache.authenticate(token);
    await cache.writeUses();
    expect(await fixture.lastUses()).toEqual([lastUse]);
  }
});

test("tokenCache() records the next use after the clock was far ahead", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const use = async (at: Date) => {
    fixture.now = at.getTime();
    const cache = await fixture.cache();
    cache.authenticate("greenhouse");
    await cache.writeUses();
  };

  await use(new Date("2066-01-01T00:00:00Z"));
  expect(await fixture.lastUses()).toEqual([new Date("2066-01-01T00:00:00Z")]);
  await use(after(60_000));
  expect(await fixture.lastUses()).toEqual([after(60_000)]);
});

test("tokenCache() writes uses in batches of at most 500, and keeps those that failed", async () => {
  const fixture = await tokenFixture(
    ...Array.from({ length: 1_100 }, (_, i) => record(`token-${i}`)),
  );
  const cache = await fixture.cache();
  const pieces: number[] = [];
  const written = new Set<string>();
  let isFull = true;

  fixture.tokens.recordUses = async (uses) => {
    pieces.push(uses.length);
    if (isFull && pieces.length > 1) throw new Error("disk full");
    for (const { name } of uses) written.add(name);
  };
  for (let i = 0; i < 1_100; i++) cache.authenticate(`token-${i}`);

  await expect(cache.writeUses()).rejects.toThrow("disk full");
  expect([pieces, written.size]).toEqual([[500, 500], 500]);

  isFull = false;
  await cache.writeUses();
  expect([pieces, written.size]).toEqual([[500, 500, 500, 100], 1_100]);

  // In the same minute.
  cache.authenticate("token-0");
  await cache.writeUses();
  expect(pieces).toHaveLength(4);
});

test("tokenCache() keeps a use that comes while an earlier one is written", async () => {
  const fixture = await tokenFixture(record("greenhouse"));
  const cache = await fixture.cache();
  cache.authenticate("greenhouse");
  const writing = cache.writeUses();

  fixture.now += 60_000;
  cache.authenticate("greenhouse");
  await writing;
  await cache.writeUses();

  expect(await fixture.lastUses()).toEqual([after(60_000)]);
});
