import { Kind, Type, TypeRegistry } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { ERRORS, PlantStoreError } from "./errors.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "./plant.ts";

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

const id = Type.Unsafe<number | bigint>({
  [Kind]: "Int64",
  type: "integer",
  format: "int64",
  description:
    "Identification number of the plant, chosen by the client: it makes a re-send safe. Every int64 is kept exactly.",
  example: 1,
  error: `\`id\` must be an integer from ${INT64_MIN} to ${INT64_MAX}`,
});

function storableText(member: string, description: string, example: string) {
  return Type.Unsafe<string>({
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
export const NewPlantSchema = Type.Object(
  { id, name, tag: Type.Optional(tag) },
  {
    description: "A plant to be stored. Unknown members are ignored.",
    // Elysia closes objects by itself, and the API ignores what it does not know.
    additionalProperties: true,
    error: ERRORS.invalid_plant.message,
  },
);

/** The response's body: a plant as a client sees it, without its id. */
export const PlantSchema = Type.Object(
  { name, tag: Type.Optional(tag) },
  { description: "A stored plant: `tag` is absent where none was sent." },
);

const schema = TypeCompiler.Compile(NewPlantSchema);

/**
 * Checks a value as the API checks a body, for plants that come another way.
 *
 * @param value What `parseExactJson` made of a text.
 * @throws {PlantStoreError} `invalid_plant`; the message names every field at fault.
 *
 * @example
 * ```ts
 * checkPlant({ id: 1, name: "Fern" }); // { id: 1n, name: "Fern" }
 * ```
 */
export function checkPlant(value: unknown): NewPlant {
  if (!schema.Check(value)) throw invalidPlant(schema.Errors(value));
  const { id, name, tag } = value;
  return tag === undefined ? { id: BigInt(id), name } : { id: BigInt(id), name, tag };
}

/** Names every field at fault: each schema carries its own sentence. */
export function invalidPlant(errors: Iterable<{ readonly schema: object }>): PlantStoreError {
  const sentences = Array.from(errors, ({ schema }) => String((schema as { error?: string }).error));
  return new PlantStoreError("invalid_plant", [...new Set(sentences)].join("; "));
}
