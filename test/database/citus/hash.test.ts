import { expect, test } from "bun:test";

import { hashint8 } from "../../../src/database/citus/hash.ts";

/** `SELECT hashint8(id)` of PostgreSQL 15. */
test.each([
  [0n, -272711505],
  [1n, -1905060026],
  [-1n, 385747274],
  [2n, 1134484726],
  [42n, 1509752520],
  [2n ** 53n + 1n, -1466497253],
  [2n ** 63n - 1n, -1524351049],
  [-(2n ** 63n), -96758253],
  [2n ** 32n, -1905060026],
  [-(2n ** 32n), -272711505],
  [2n ** 31n, -1524351049],
])("hashint8(%d) is PostgreSQL's", (id, hash) => {
  expect(hashint8(id)).toBe(hash);
});
