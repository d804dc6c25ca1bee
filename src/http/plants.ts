import { Elysia, t } from "elysia";
import { TypeRegistry, TypeSystem } from "elysia/type-system";

import { ERRORS, PlantStoreError } from "../errors.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import { INT64_MAX, INT64_MIN, type Plant } from "../plant/plant.ts";
import { parsePlant } from "../plant/plant_json.ts";
import type { BodyReader } from "./body.ts";
import { successResponse } from "./responses.ts";

// These schemas are for the OpenAPI document and the types of clients. They refuse nothing:
// `parsePlant` checks a body, because a refusal must be cheap. A test compares the two.

// `t.Integer` also accepts a string, and documents that. The registry is global, and refuses to
// register a type twice.
TypeRegistry.Delete("PlainInteger");
const PlainInteger = TypeSystem.Type<number>("PlainInteger", (_options, value) =>
  Number.isInteger(value),
);

const id = PlainInteger({
  type: "integer",
  format: "int64",
  // No `minimum` and `maximum`: JavaScript would round the limits of int64.
  description: [
    "Identification number of the plant, chosen by the client: it makes a retry safe. Every int64 is kept exactly,",
    `from ${INT64_MIN} to ${INT64_MAX}. JavaScript silently rounds a \`number\` past 2^53, and JSON.stringify refuses a`,
    `\`bigint\`: send \`JSON.rawJSON("${INT64_MAX}")\`. Never send a string.`,
  ].join(" "),
  example: 1,
});

function storableText(description: string, example: string) {
  return t.String({
    description: `${description}. Any Unicode text without U+0000 or lone surrogates, kept exactly.`,
    // JavaScript, Python, Go and Rust all accept this syntax. They have none in common that
    // excludes lone surrogates.
    pattern: "^[^\\x00]*$",
    example,
  });
}

/** The descriptive fields. */
const fields = {
  name: storableText("The name of the plant", "Monstera deliciosa"),
  tag: t.Optional(storableText("Tag that specifies the type of the plant", "indoor")),
} satisfies Record<keyof Plant, unknown>;

/**
 * The schema of the request body. `id` is a `number` for clients, because JSON.stringify refuses a
 * `bigint`.
 */
export const NewPlantSchema = t.Object(
  { id, ...fields },
  { description: "A plant to store. Other fields are ignored." },
);

/** A plant with every field: the examples of the schemas. */
export const EXAMPLE = Object.fromEntries(
  Object.entries(NewPlantSchema.properties).map(([field, { example }]) => [field, example]),
) as Required<Plant> & { readonly id: number };

/** The schema of the response body: a plant without its id. */
const PlantSchema = t.Object(fields, {
  description: "A stored plant. A field that was not sent is absent.",
  // A client in Go or Java would otherwise refuse the fields of a later version.
  additionalProperties: true,
});

const NUMBERS = Object.values(ERRORS).map(({ error }) => error);

/** The body of every error (RFC 8259): the contract's Error. */
const ErrorSchema = t.Object(
  {
    error: PlainInteger({
      type: "integer",
      format: "int32",
      // No `enum`: a generated client could not read an error that a later version adds.
      minimum: 4000,
      maximum: 5999,
      description: [
        "Numeric error value: the status times ten plus a digit for the cause. One of",
        `${NUMBERS.join(", ")}. Handle any other by its status: later versions may add causes.`,
      ].join(" "),
      example: ERRORS.id_taken.error,
    }),
    message: t.String({
      description: "What is wrong and where",
      example: ERRORS.id_taken.message,
    }),
  },
  { description: "Why a call failed", additionalProperties: true },
);

/**
 * Returns the route `POST /plants`. The guard in front of it checks credentials.
 *
 * @param plants Stores the plants.
 */
export function plantsApi(plants: Pick<GroupCommit, "add">, readBody: BodyReader["read"]) {
  return new Elysia({ name: "plants" })
    .model({ NewPlant: NewPlantSchema, Plant: PlantSchema, Error: ErrorSchema })
    .post(
      "/plants",
      async ({ request, headers }) => {
        const plant = parsePlant(await readBody(request, headers));
        const outcome = await plants.add(plant);
        if (outcome === "conflict") throw new PlantStoreError("id_taken");

        // A store in JavaScript may return anything. Only these two outcomes mean that the plant is
        // stored.
        if (outcome !== "added" && outcome !== "present") {
          throw new TypeError(`Unknown outcome of add(): ${String(outcome)}`);
        }

        // Elysia does not check a Response, and need not: the plant was checked before it was
        // stored.
        const { id: _, ...stored } = plant;
        return successResponse(stored);
      },
      {
        // The handler parses and validates; this schema only documents. Elysia would parse before
        // it checks credentials.
        parse: "none",
        body: "NewPlant",

        response: {
          200: "Plant",
          400: "Error",
          401: "Error",
          403: "Error",
          409: "Error",
          413: "Error",
          415: "Error",
          500: "Error",
          503: "Error",
        },

        detail: {
          operationId: "createPlant",
          tags: ["plants"],
          summary: "Create a plant",
          description:
            "Stores a plant. The client chooses `id`, so a retry is safe: the same plant sent again gets 200, a different one 409.",
        },
      },
    );
}
