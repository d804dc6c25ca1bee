import { expect, test } from "bun:test";
import { join } from "node:path";
import { sha256 } from "../src/adapters/sha256.ts";
import { openDatabase } from "../src/adapters/sqlite/database.ts";
import { sqliteTokens } from "../src/adapters/sqlite/tokens.ts";
import { knownTokens } from "../src/known_tokens.ts";
import { mintToken } from "../src/tokens.ts";
import { emptyDirectory } from "./support/program.ts";

const CREATED = new Date("2026-01-01T00:00:00Z");
const TOKEN = mintToken(sha256);

/** Tokens in a real database, and a clock to set. */
function world() {
  const directory = emptyDirectory();
  const database = openDatabase(join(directory.path, "plants.db"));
  const store = sqliteTokens(database);
  const clock = { now: CREATED.getTime() };
  const dispose = () => {
    database.close();
    directory[Symbol.dispose]();
  };
  return { store, clock, options: { sha256, now: () => clock.now }, [Symbol.dispose]: dispose };
}

const record = (name: string, expiresAt: Date | null = null) => ({
  name,
  digest: sha256(TOKEN),
  createdAt: CREATED,
  expiresAt,
});

test("knownTokens() knows fixed tokens and kept ones", async () => {
  using given = world();
  await given.store.add(record("greenhouse"));
  const known = await knownTokens(given.store, { ...given.options, fixed: ["fixed-token-0123456"] });
  expect(known.authenticate(TOKEN)).toBe(true);
  expect(known.authenticate("fixed-token-0123456")).toBe(true);
  expect(known.count()).toBe(2);
});

test("knownTokens() tells the log why a token does not count", async () => {
  using given = world();
  const known = await knownTokens(given.store, given.options);
  expect(known.authenticate(TOKEN)).toBe("unknown");
  expect(known.authenticate(`${TOKEN.slice(0, -1)}!`)).toBe("mistyped");
});

test("knownTokens() counts a token until the moment it expires", async () => {
  using given = world();
  await given.store.add(record("greenhouse", new Date(CREATED.getTime() + 1_000)));
  const known = await knownTokens(given.store, given.options);
  given.clock.now += 999;
  expect(known.authenticate(TOKEN)).toBe(true);
  given.clock.now += 1;
  expect(known.authenticate(TOKEN)).toBe('"greenhouse" is expired');
});

test("knownTokens() learns of tokens made and revoked elsewhere when it is refreshed", async () => {
  using given = world();
  const known = await knownTokens(given.store, given.options);
  await given.store.add(record("greenhouse"));
  await known.refresh();
  expect(known.authenticate(TOKEN)).toBe(true);
  expect(await given.store.revoke("greenhouse", CREATED)).toBe(true);
  await known.refresh();
  expect(known.authenticate(TOKEN)).toBe('"greenhouse" is revoked');
  expect(await given.store.revoke("greenhouse", CREATED)).toBe(false);
});

test("knownTokens() notes the last use to the minute", async () => {
  using given = world();
  await given.store.add(record("greenhouse"));
  const known = await knownTokens(given.store, given.options);
  const lastUse = async () => {
    await known.refresh();
    return (await given.store.list())[0]?.lastUsedAt?.toISOString();
  };
  expect(await lastUse()).toBeUndefined();
  given.clock.now += 90_000;
  known.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  given.clock.now += 60_000;
  expect(await lastUse()).toBe("2026-01-01T00:01:00.000Z");
  known.authenticate(TOKEN);
  expect(await lastUse()).toBe("2026-01-01T00:02:00.000Z");
});

test("knownTokens() keeps a new token that counts at once, and refuses a name that is taken", async () => {
  using given = world();
  const known = await knownTokens(given.store, given.options);
  expect(await known.add(record("greenhouse"))).toBe(true);
  expect(known.authenticate(TOKEN)).toBe(true);
  expect(await known.add({ ...record("greenhouse"), digest: sha256("other") })).toBe(false);
  expect(known.authenticate("other")).toBe("unknown");
});
