import { Kind, TypeRegistry } from "@sinclair/typebox";
import { t } from "elysia";
import { ERRORS } from "./errors.ts";

/** The ends of int64, where SQLite's INTEGER and PostgreSQL's bigint end too. */
export const INT64_MIN = -(2n ** 63n);
/** See {@linkcode INT64_MIN}. */
export const INT64_MAX = 2n ** 63n - 1n;

// TypeBox's own integer takes "1" and rounds past 2^53, its string takes what no database keeps
// exactly: these two kinds say what can be stored, and document as plain OpenAPI types.
TypeRegistry.Set("Int64", (_schema, value) => isInt64(value));
TypeRegistry.Set("StorableText", (_schema, value) => isStorableText(value));

function isInt64(value: unknown): boolean {
  if (typeof value === "number") return Number.isSafeInteger(value);
  return typeof value === "bigint" && value >= INT64_MIN && value <= INT64_MAX;
}

/** U+0000 cannot be held by PostgreSQL's text, a lone surrogate not by UTF-8 (RFC 3629, section 3). */
function isStorableText(value: unknown): boolean {
  return typeof value === "string" && value.isWellFormed() && !value.includes("\0");
}

const id = t.Unsafe<number | bigint>({
  [Kind]: "Int64",
  type: "integer",
  format: "int64",
  description:
    "Identification number of the plant, chosen by the client: it makes a re-send safe. Every int64 is kept exactly.",
  example: 1,
  error: `\`id\` must be an integer from ${INT64_MIN} to ${INT64_MAX}`,
});

function storableText(member: string, description: string, example: string) {
  return t.Unsafe<string>({
    [Kind]: "StorableText",
    type: "string",
    description: `${description}. Any Unicode text but U+0000 and lone surrogates; kept exactly.`,
    example,
    error: `\`${member}\` must be a string without U+0000 and lone surrogates`,
  });
}

const name = storableText("name", "The name of the plant", "Monstera deliciosa");
const tag = storableText("tag", "Tag that specifies the type of the plant", "indoor");

/** The request body: a plant as a client sends it. Its type is what a body is after validation. */
export const NewPlantSchema = t.Object(
  { id, name, tag: t.Optional(tag) },
  {
    description: "A plant to be stored. Unknown members are ignored.",
    // Elysia closes objects by itself, and the API ignores what it does not know.
    additionalProperties: true,
    error: ERRORS.invalid_plant.message,
  },
);

/** The answer's body: a plant as a client sees it, without its id. */
export const PlantSchema = t.Object(
  { name, tag: t.Optional(tag) },
  { description: "A stored plant: `tag` is absent where none was sent." },
);

/** A plant's descriptive fields. */
export type Plant = typeof PlantSchema.static;

/** A plant to be stored: the noun that crosses the ports. */
export interface NewPlant extends Plant {
  /** Any int64, exactly. */
  readonly id: bigint;
}

/** Whether two plants have the same descriptive fields: what makes a re-send a re-send. */
export function samePlant(one: Plant, other: Plant): boolean {
  return one.name === other.name && one.tag === other.tag;
}
