import { INT64_MAX, INT64_MIN, type NewPlant } from "../plant/plant.ts";

/** How many plants a page has at most. */
export const PAGE_PLANTS = 4_000;
/** A page ends behind the plant whose texts make it this long, in bytes or in UTF-16 code units: a name may be long. */
export const PAGE_TEXT = 2 ** 20;

/**
 * Reads all plants a page at a time, by key and not by offset: plants are never changed and never deleted, so the next
 * page begins where the last one ended, and its cost does not grow with how many came before.
 *
 * @param pageFrom Reads a page: some plants with this id or a greater one, ordered by id; none where there are no more.
 */
export async function* keysetPages(
  pageFrom: (id: bigint) => readonly NewPlant[] | Promise<readonly NewPlant[]>,
): AsyncGenerator<readonly NewPlant[]> {
  let page = await pageFrom(INT64_MIN);
  for (let last = page.at(-1); last !== undefined; last = page.at(-1)) {
    yield page;
    page = last.id === INT64_MAX ? [] : await pageFrom(last.id + 1n);
  }
}
