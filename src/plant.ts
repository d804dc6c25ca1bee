/** The ends of int64, where SQLite's INTEGER and PostgreSQL's bigint end too. */
export const INT64_MIN = -(2n ** 63n);
/** See {@linkcode INT64_MIN}. */
export const INT64_MAX = 2n ** 63n - 1n;

/** A plant's descriptive fields. */
export interface Plant {
  readonly name: string;
  /** What type the plant is of; absent where none was sent. */
  readonly tag?: string;
}

/** A plant to be stored: the noun that crosses the ports. */
export interface NewPlant extends Plant {
  /** Any int64, exactly. */
  readonly id: bigint;
}

/** Whether two plants have the same descriptive fields: what makes a re-send a re-send. */
export function samePlant(one: Plant, other: Plant): boolean {
  return one.name === other.name && one.tag === other.tag;
}
