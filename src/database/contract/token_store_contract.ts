import assert from "node:assert/strict";

import { SCOPES } from "../../auth/authenticate.ts";
import type { NewToken, TokenRecord, TokenStore } from "../../auth/token_store.ts";
import type { Database } from "../database.ts";
import { type Cases, type ContractCase, contractCases } from "./contract_case.ts";

/** Opens a new, empty store of tokens. */
export type OpenTokenStore = () => Promise<{ readonly tokens: TokenStore } & AsyncDisposable>;

/**
 * Returns the contract of a {@linkcode TokenStore} as tests.
 *
 * @param open Opens a new, empty store as `tokens`. Each test disposes of its own.
 * @param reopen Opens the store of the last `open` again, while it is open, as another process
 *   would.
 *
 * @example
 * ```ts
 * import { test } from "node:test";
 * import { memoryTokens } from "plant-store";
 * import { tokenStoreContract } from "plant-store/testing";
 *
 * const open = async () => ({ tokens: memoryTokens(), async [Symbol.asyncDispose]() {} });
 *
 * for (const { name, run } of tokenStoreContract(open)) test(name, run);
 * ```
 */
export function tokenStoreContract(open: OpenTokenStore, reopen?: OpenTokenStore): ContractCase[] {
  return contractCases("TokenStore", open, { ...CASES, ...(reopen && casesOfTwo(reopen)) });
}

const CREATED = new Date("2026-01-01T00:00:00.001Z");
const LATER = new Date("2026-01-01T00:01:00Z");
const GREENHOUSE: NewToken = {
  name: "greenhouse",
  digest: new Uint8Array(32).map((_, index) => index * 8),
  createdAt: CREATED,
  expiresAt: LATER,
  scopes: SCOPES,
};
const GARDEN: NewToken = {
  name: "garden",
  digest: new Uint8Array(32).fill(255),
  createdAt: LATER,
  expiresAt: null,
  scopes: ["metrics"],
};

const CASES: Cases<Pick<Database, "tokens">> = {
  async "list() gives every token as it was added, oldest first"({ tokens }) {
    await assertStored(tokens, []);
    assert.equal(await tokens.add(GARDEN), true);
    assert.equal(await tokens.add(GREENHOUSE), true);
    await assertStored(tokens, [stored(GREENHOUSE), stored(GARDEN)]);
  },

  async "list() gives many tokens, with exact times, oldest first"({ tokens }) {
    const all = Array.from({ length: 500 }, (_, index) => ({
      ...GARDEN,
      name: `token ${index}`,
      digest: new Uint8Array(32).fill(index % 256).fill(index >> 8, 31),
      createdAt: new Date(CREATED.getTime() + index),
      expiresAt: index % 3 === 0 ? null : new Date(LATER.getTime() + index * 1_000_003),
    }));

    for (const token of all.toReversed()) assert.equal(await tokens.add(token), true);
    await assertStored(tokens, all.map(stored));
  },

  async "add() of a name or a digest that is taken changes nothing"({ tokens }) {
    await tokens.add(GREENHOUSE);
    assert.equal(await tokens.add({ ...GARDEN, name: GREENHOUSE.name }), false);
    assert.equal(await tokens.add({ ...GARDEN, digest: GREENHOUSE.digest }), false);
    await assertStored(tokens, [stored(GREENHOUSE)]);
  },

  async "add() of a token that is revoked stores it so, and it stays revoked"({ tokens }) {
    const revoked = { ...GREENHOUSE, revokedAt: CREATED };
    assert.equal(await tokens.add(revoked), true);
    assert.equal(await tokens.add(GREENHOUSE), false);
    assert.equal(await tokens.revoke("greenhouse", LATER), false);
    await assertStored(tokens, [stored(revoked)]);
  },

  async "revoke() revokes once, and nothing that is not there"({ tokens }) {
    await tokens.add(GREENHOUSE);
    assert.equal(await tokens.revoke("garden", LATER), false);
    assert.equal(await tokens.revoke("greenhouse", LATER), true);
    assert.equal(await tokens.revoke("greenhouse", CREATED), false);
    await assertStored(tokens, [{ ...stored(GREENHOUSE), revokedAt: LATER }]);
  },

  async "revoke() keeps the name and the digest taken, and leaves other tokens as they are"({
    tokens,
  }) {
    await tokens.add(GREENHOUSE);
    await tokens.add(GARDEN);
    await tokens.revoke("greenhouse", LATER);

    assert.equal(await tokens.add({ ...GREENHOUSE, digest: new Uint8Array(32) }), false);
    assert.equal(await tokens.add({ ...GREENHOUSE, name: "another" }), false);
    await assertStored(tokens, [{ ...stored(GREENHOUSE), revokedAt: LATER }, stored(GARDEN)]);
  },

  async "recordUses() records the last use of tokens that are there"({ tokens }) {
    await tokens.add(GREENHOUSE);
    await tokens.recordUses(["greenhouse", "nobody"].map((name) => ({ name, at: LATER })));
    await assertStored(tokens, [{ ...stored(GREENHOUSE), lastUsedAt: LATER }]);
  },

  async "recordUses() records many uses at once, of a revoked token too, and none of nothing"({
    tokens,
  }) {
    await tokens.add(GREENHOUSE);
    await tokens.add(GARDEN);
    await tokens.revoke("garden", CREATED);
    const both = [stored(GREENHOUSE), { ...stored(GARDEN), revokedAt: CREATED }];

    await tokens.recordUses([]);
    await assertStored(tokens, both);

    await tokens.recordUses(both.map(({ name }) => ({ name, at: LATER })));
    const used = both.map((token) => ({ ...token, lastUsedAt: LATER }));
    await assertStored(tokens, used);
  },

  async "recordUses() leaves a later use as it is"({ tokens }) {
    await tokens.add(GREENHOUSE);
    await tokens.recordUses([{ name: "greenhouse", at: LATER }]);
    await tokens.recordUses([{ name: "greenhouse", at: CREATED }]);
    await assertStored(tokens, [{ ...stored(GREENHOUSE), lastUsedAt: LATER }]);
  },

  async "recordUses() replaces a use that is more than a day later, because a clock was wrong"({
    tokens,
  }) {
    await tokens.add(GREENHOUSE);
    const use = async (at: Date) => tokens.recordUses([{ name: "greenhouse", at }]);
    const later = (ms: number) => new Date(LATER.getTime() + 86_400_000 + ms);

    await use(later(0));
    await use(LATER);
    await assertStored(tokens, [{ ...stored(GREENHOUSE), lastUsedAt: later(0) }]);

    await use(later(1));
    await use(LATER);
    await assertStored(tokens, [{ ...stored(GREENHOUSE), lastUsedAt: LATER }]);
  },

  async "delete() frees the name, and deletes nothing that is not there"({ tokens }) {
    await tokens.add(GREENHOUSE);
    assert.equal(await tokens.delete("garden"), false);
    assert.equal(await tokens.delete("greenhouse"), true);
    assert.equal(await tokens.delete("greenhouse"), false);
    assert.equal(await tokens.add({ ...GARDEN, name: "greenhouse" }), true);
    await assertStored(tokens, [{ ...stored(GARDEN), name: "greenhouse" }]);
  },

  async "prune() deletes what is revoked, or has expired by then"({ tokens }) {
    await tokens.add(GREENHOUSE);
    await tokens.add(GARDEN);
    await tokens.add({ ...GARDEN, name: "yard", digest: new Uint8Array(32) });
    await tokens.revoke("yard", CREATED);

    assert.equal(await tokens.prune(CREATED), 1);
    assert.equal(await tokens.prune(LATER), 1);
    assert.equal(await tokens.prune(LATER), 0);
    await assertStored(tokens, [stored(GARDEN)]);
  },

  async "revision() changes with tokens that are added, revoked and deleted, and not with uses"({
    tokens,
  }) {
    const revisions = [await tokens.revision()];
    const changes = [
      () => tokens.add(GREENHOUSE),
      () => tokens.revoke("greenhouse", LATER),
      () => tokens.delete("greenhouse"),
      () => tokens.add(GARDEN),
    ];

    for (const change of changes) {
      await change();
      revisions.push(await tokens.revision());
    }

    await tokens.prune(CREATED);
    await tokens.delete("nobody");
    await tokens.add(GARDEN);
    await tokens.recordUses([{ name: "garden", at: LATER }]);
    assert.equal(await tokens.revision(), revisions.at(-1));
    assert.equal(new Set(revisions).size, 5);
  },
};

/** Returns the cases that need a database that is opened twice. */
function casesOfTwo(reopen: OpenTokenStore): Cases<Pick<Database, "tokens">> {
  return {
    async "add(), recordUses(), revoke(), delete() and prune() have committed when they resolve"({
      tokens,
    }) {
      await using beside = await reopen();
      const revision = await beside.tokens.revision();

      await tokens.add(GREENHOUSE);
      await tokens.add(GARDEN);
      await assertStored(beside.tokens, [stored(GREENHOUSE), stored(GARDEN)]);

      await tokens.recordUses([{ name: "greenhouse", at: LATER }]);
      const used = { ...stored(GREENHOUSE), lastUsedAt: LATER };
      await assertStored(beside.tokens, [used, stored(GARDEN)]);

      await tokens.revoke("greenhouse", LATER);
      await assertStored(beside.tokens, [{ ...used, revokedAt: LATER }, stored(GARDEN)]);
      assert.notEqual(await beside.tokens.revision(), revision);

      await tokens.delete("garden");
      await assertStored(beside.tokens, [{ ...used, revokedAt: LATER }]);

      await tokens.prune(LATER);
      await assertStored(beside.tokens, []);
    },
  };
}

function stored(token: NewToken): TokenRecord {
  return { revokedAt: null, ...token, lastUsedAt: null };
}

async function assertStored(tokens: TokenStore, expected: readonly TokenRecord[]): Promise<void> {
  assert.deepEqual((await tokens.list()).map(plain), expected.map(plain));
}

/** A digest may be any `Uint8Array`, such as a `Buffer`. */
function plain(token: TokenRecord): object {
  return { ...token, digest: Array.from(token.digest) };
}
