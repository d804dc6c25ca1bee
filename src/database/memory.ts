import {
  MAX_AHEAD_MS,
  type NewToken,
  type TokenRecord,
  type TokenStore,
  type TokenUse,
} from "../auth/token_store.ts";
import type { AddOutcome, PlantStore } from "../group_commit/plant_store.ts";
import { type NewPlant, type Plant, samePlant } from "../plant/plant.ts";
import { type Database, keysetPages, PAGE_PLANTS } from "./database.ts";

/**
 * Returns a database in memory, which is lost when the process ends: for tests, and as the smallest example of
 * an adapter.
 */
export function memoryDatabase(): Database {
  const plants = new Map<bigint, Plant>();

  function addOne({ id, ...plant }: NewPlant): AddOutcome {
    const stored = plants.get(id);
    if (stored !== undefined) return samePlant(stored, plant) ? "present" : "conflict";
    plants.set(id, plant);
    return "added";
  }

  /** Sorts all ids for each page: fast enough for the few plants in memory. */
  function pageFrom(from: bigint): NewPlant[] {
    const ids = [...plants.keys()]
      .filter((id) => id >= from)
      .toSorted((one, other) => (one < other ? -1 : 1));
    return ids.slice(0, PAGE_PLANTS).map((id) => ({ id, ...(plants.get(id) as Plant) }));
  }

  return {
    plants: { add: async (batch) => batch.map(addOne), probe: async () => {} },
    tokens: memoryTokens(),
    pages: () => keysetPages(pageFrom),
    find: async (ids) =>
      ids.flatMap((id) => {
        const plant = plants.get(id);
        return plant === undefined ? [] : { id, ...plant };
      }),
    count: async () => plants.size,
    delete: async (ids) => ids.forEach((id) => plants.delete(id)),
    [Symbol.asyncDispose]: async () => {},
  };
}

/**
 * Returns a store of plants in memory, which is lost when the process ends. It can be disposed of, like a store
 * that must be closed; that does nothing.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryStore } from "plant-store";
 *
 * const store = memoryStore();
 * const outcomes = await store.add([{ id: 1n, name: "Fern" }], { timeoutMs: 1_000 });
 *
 * assert.deepEqual(outcomes, ["added"]);
 * ```
 */
export function memoryStore(): PlantStore & AsyncDisposable {
  return { ...memoryDatabase().plants, async [Symbol.asyncDispose]() {} };
}

/**
 * Returns a store of tokens in memory, which is lost when the process ends.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { memoryTokens, mintToken } from "plant-store";
 *
 * const tokens = memoryTokens();
 * const { digest } = mintToken();
 * const times = { createdAt: new Date(), expiresAt: null };
 * await tokens.add({ name: "greenhouse", digest, ...times, scopes: ["write"] });
 *
 * assert.equal(await tokens.revoke("greenhouse", new Date()), true);
 * ```
 */
export function memoryTokens(): TokenStore {
  const tokens = new Map<string, TokenRecord>();
  let revision = 0;

  /** Increments the revision if tokens changed. Returns the number of changed tokens. */
  function changed(count: number): number {
    if (count > 0) revision++;
    return count;
  }

  function isTaken({ name, digest }: NewToken): boolean {
    return tokens.has(name) || tokens.values().some((token) => isSame(token.digest, digest));
  }

  function recordUse({ name, at }: TokenUse): void {
    const token = tokens.get(name);
    if (token === undefined) return;
    const aheadMs = Number(token.lastUsedAt) - Number(at);
    if (aheadMs < 0 || aheadMs > MAX_AHEAD_MS) tokens.set(name, { ...token, lastUsedAt: at });
  }

  return {
    list: async () =>
      [...tokens.values()].toSorted(
        (one, other) => +one.createdAt - +other.createdAt || (one.name < other.name ? -1 : 1),
      ),

    revision: async () => String(revision),

    async add(token) {
      if (isTaken(token)) return false;
      tokens.set(token.name, { revokedAt: null, ...token, lastUsedAt: null });
      return changed(1) === 1;
    },

    async revoke(name, at) {
      const token = tokens.get(name);
      if (token?.revokedAt !== null) return false;
      tokens.set(name, { ...token, revokedAt: at });
      return changed(1) === 1;
    },

    delete: async (name) => changed(Number(tokens.delete(name))) === 1,

    async prune(at) {
      const ended = [...tokens.values()].filter(
        ({ revokedAt, expiresAt }) => revokedAt !== null || (expiresAt !== null && expiresAt <= at),
      );
      return changed(ended.filter(({ name }) => tokens.delete(name)).length);
    },

    recordUses: async (uses) => uses.forEach(recordUse),
  };
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.every((byte, index) => byte === other[index]);
}
