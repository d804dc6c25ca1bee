/** The smallest int64, also the smallest value of SQLite's INTEGER and PostgreSQL's bigint. */
export const INT64_MIN = -(2n ** 63n);
/** The largest one. */
export const INT64_MAX = 2n ** 63n - 1n;

/** A plant's descriptive fields. */
export interface Plant {
  readonly name: string;
  /** What type the plant is of; absent where none was sent. */
  readonly tag?: string;
}

/** A plant to be stored. */
export interface NewPlant extends Plant {
  /** Any int64, exactly. */
  readonly id: bigint;
}

/** Whether two plants have the same descriptive fields: under one id, the second one is a re-send then. */
export function samePlant(one: Plant, other: Plant): boolean {
  return one.name === other.name && one.tag === other.tag;
}
