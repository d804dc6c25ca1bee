import { Kind, Type, TypeRegistry } from "@sinclair/typebox";
import { PlantStoreError } from "../errors.ts";
import { INT64_MAX, INT64_MIN, type NewPlant } from "./plant.ts";

// TypeBox's own integer takes "1" and rounds past 2^53, its string takes what no database keeps
// exactly: these two kinds say what can be stored, and document as plain OpenAPI types.
TypeRegistry.Set("Int64", (_schema, value) => isInt64(value));
TypeRegistry.Set("StorableText", (_schema, value) => isStorableText(value));

function isInt64(value: unknown): value is number | bigint {
  if (typeof value === "number") return Number.isSafeInteger(value);
  return typeof value === "bigint" && value >= INT64_MIN && value <= INT64_MAX;
}

/** U+0000 cannot be held by PostgreSQL's text, a lone surrogate not by UTF-8 (RFC 3629, section 3). */
function isStorableText(value: unknown): value is string {
  return typeof value === "string" && value.isWellFormed() && !value.includes("\0");
}

const id = Type.Unsafe<number>({
  [Kind]: "Int64",
  type: "integer",
  format: "int64",
  // Without `minimum` and `maximum`: the document passes through JavaScript, which would round int64's ends.
  description: [
    "Identification number of the plant, chosen by the client: it makes a re-send safe. Every int64 is kept exactly,",
    `from ${INT64_MIN} to ${INT64_MAX}. In JavaScript a \`number\` past 2^53 is silently another id, and a \`bigint\` is no`,
    `JSON: send \`JSON.rawJSON("${INT64_MAX}")\`. Never a string.`,
  ].join(" "),
  example: 1,
});

function storableText(description: string, example: string) {
  return Type.Unsafe<string>({
    [Kind]: "StorableText",
    type: "string",
    description: `${description}. Any Unicode text but U+0000 and lone surrogates; kept exactly.`,
    example,
  });
}

const name = storableText("The name of the plant", "Monstera deliciosa");
const tag = storableText("Tag that specifies the type of the plant", "indoor");

/** The request body: a plant as a client sends it. Its type is for clients, and JSON.stringify takes no `bigint`. */
export const NewPlantSchema = Type.Object(
  { id, name, tag: Type.Optional(tag) },
  {
    description: "A plant to be stored. Unknown members are ignored.",
    // Elysia closes objects by itself, and the API ignores what it does not know.
    additionalProperties: true,
  },
);

/** The response's body: a plant as a client sees it, without its id. */
export const PlantSchema = Type.Object(
  { name, tag: Type.Optional(tag) },
  { description: "A stored plant: `tag` is absent where none was sent." },
);

/** What a plant is read from: the messages name it. */
export type Subject = "the body" | "the line";

/**
 * The plant that a value is. By hand, because most plants are good and a refusal has to be cheap, too: a test holds
 * that this and {@linkcode NewPlantSchema} agree.
 *
 * @param value What `parseExactJson` made of a text.
 * @param subject What the value was read from.
 * @throws {PlantStoreError} `invalid_plant`; the message names every field at fault.
 *
 * @example
 * ```ts
 * checkPlant({ id: 1, name: "Fern" }); // { id: 1n, name: "Fern" }
 * ```
 */
export function checkPlant(value: unknown, subject: Subject = "the body"): NewPlant {
  if (!isObject(value)) {
    throw new PlantStoreError("invalid_plant", `${subject} must be a JSON object with \`id\` and \`name\``);
  }
  const { id, name, tag } = value;
  if (!isInt64(id) || !isStorableText(name)) throw invalidPlant(value);
  if (tag === undefined) return { id: BigInt(id), name };
  if (!isStorableText(tag)) throw invalidPlant(value);
  return { id: BigInt(id), name, tag };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function invalidPlant({ id, name, tag }: Record<string, unknown>): PlantStoreError {
  const faults = [];
  if (id === undefined) faults.push("`id` is missing");
  else if (!isInt64(id)) faults.push(NOT_INT64);
  if (name === undefined) faults.push("`name` is missing");
  else if (!isStorableText(name)) faults.push(`\`name\` ${NOT_STORABLE}`);
  if (tag !== undefined && !isStorableText(tag)) faults.push(`\`tag\` ${NOT_STORABLE}`);
  return new PlantStoreError("invalid_plant", faults.join("; "));
}

// Made once: writing out two bigints costs as much as checking a plant.
const NOT_INT64 = `\`id\` must be an integer from ${INT64_MIN} to ${INT64_MAX}`;
const NOT_STORABLE = "must be a string without U+0000 and lone surrogates";
