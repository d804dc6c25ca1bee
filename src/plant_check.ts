import { TypeCompiler } from "@sinclair/typebox/compiler";
import { PlantStoreError } from "./errors.ts";
import { type NewPlant, NewPlantSchema } from "./plant.ts";

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
