import type { Database } from "../database.ts";
import { keysetPages } from "../keyset.ts";
import { type NewPlant, type Plant, samePlant } from "../plant.ts";
import type { AddOutcome, PlantStore } from "../plant_store.ts";
import type { TokenRecord, TokenStore } from "../token_store.ts";

/** A database that forgets at the end of the process: for tests, and the smallest example of the port. */
export function memoryDatabase(): Database {
  const plants = new Map<bigint, Plant>();
  return {
    plants: storeIn(plants),
    tokens: memoryTokens(),
    pages: () => keysetPages((from) => pageFrom(plants, from)),
    metrics: () => [],
    failed: new Promise(() => {}),
    [Symbol.asyncDispose]: async () => {},
  };
}

/** The plants of a {@linkcode memoryDatabase}, where nothing else is needed. */
export function memoryStore(): PlantStore {
  return storeIn(new Map());
}

function storeIn(plants: Map<bigint, Plant>): PlantStore {
  function addOne({ id, ...plant }: NewPlant): AddOutcome {
    const stored = plants.get(id);
    if (stored !== undefined) return samePlant(stored, plant) ? "present" : "conflict";
    plants.set(id, plant);
    return "added";
  }

  return { add: async (batch) => batch.map(addOne), probe: async () => {} };
}

/** Sorting all ids for every page is for as few plants as memory is for. */
const PAGE_PLANTS = 1_000;

function pageFrom(plants: ReadonlyMap<bigint, Plant>, from: bigint): NewPlant[] {
  const ids = [...plants.keys()].filter((id) => id >= from).toSorted((one, other) => (one < other ? -1 : 1));
  return ids.slice(0, PAGE_PLANTS).map((id) => ({ id, ...(plants.get(id) as Plant) }));
}

function memoryTokens(): TokenStore {
  const tokens = new Map<string, TokenRecord>();
  let revision = 0;
  const change = (name: string, part: Partial<TokenRecord>) => {
    const token = tokens.get(name);
    if (token !== undefined) tokens.set(name, { ...token, ...part });
  };
  return {
    list: async () => [...tokens.values()].toSorted(byAge),
    revision: async () => String(revision),
    async add(token) {
      const isTaken = Array.from(tokens.values()).some(
        ({ name, digest }) => name === token.name || sameBytes(digest, token.digest),
      );
      revision++;
      if (!isTaken) tokens.set(token.name, { ...token, revokedAt: null, lastUsedAt: null });
      return !isTaken;
    },
    async revoke(name, at) {
      revision++;
      const isValid = tokens.get(name)?.revokedAt === null;
      if (isValid) change(name, { revokedAt: at });
      return isValid;
    },
    async recordUses(uses) {
      for (const { name, at } of uses) {
        const { lastUsedAt } = tokens.get(name) ?? {};
        if (!lastUsedAt || lastUsedAt < at) change(name, { lastUsedAt: at });
      }
    },
  };
}

function byAge(one: TokenRecord, other: TokenRecord): number {
  return one.createdAt.getTime() - other.createdAt.getTime() || (one.name < other.name ? -1 : 1);
}

function sameBytes(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}
