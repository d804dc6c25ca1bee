/**
 * Computes PostgreSQL's `hashint8`, by which Citus chooses the shard of a row. It is Bob Jenkins' hash of the
 * two halves of an id, folded so that an int8 and an equal int4 have the same hash
 * (src/backend/access/hash/hashfunc.c and src/common/hashfn.c of PostgreSQL).
 *
 * @returns An int4.
 */
export function hashint8(id: bigint): number {
  const low = Number(BigInt.asIntN(32, id));
  const high = Number(BigInt.asIntN(32, id >> 32n));
  return hashUint32(low ^ (id >= 0n ? high : ~high));
}

/** The initial state for a key of four bytes. */
const SEED = (0x9e3779b9 + 4 + 3_923_095) | 0;

/** Jenkins' `final` over one word. Numbers wrap as uint32 do. */
function hashUint32(word: number): number {
  let a = (SEED + word) | 0;
  let b = SEED;
  let c = SEED;

  c = ((c ^ b) - rotate(b, 14)) | 0;
  a = ((a ^ c) - rotate(c, 11)) | 0;
  b = ((b ^ a) - rotate(a, 25)) | 0;
  c = ((c ^ b) - rotate(b, 16)) | 0;
  a = ((a ^ c) - rotate(c, 4)) | 0;
  b = ((b ^ a) - rotate(a, 14)) | 0;
  c = ((c ^ b) - rotate(b, 24)) | 0;

  return c;
}

function rotate(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}
