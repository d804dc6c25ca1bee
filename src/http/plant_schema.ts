import { t } from "elysia";
import { TypeRegistry, TypeSystem } from "elysia/type-system";
import { INT64_MAX, INT64_MIN } from "../plant/plant.ts";

// These document, and are the types of clients. `parsePlant` checks a body: most plants are good, and a refusal has to be
// cheap, too. A test holds that the two agree.

// `t.Integer` also takes a string, and documents that. The registry is of the process, and refuses a second copy of this.
TypeRegistry.Delete("Int64");
const Int64 = TypeSystem.Type<number>("Int64", (_options, value) => Number.isInteger(value));

const id = Int64({
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
  return t.String({
    description: `${description}. Any Unicode text but U+0000 and lone surrogates; kept exactly.`,
    example,
  });
}

const name = storableText("The name of the plant", "Monstera deliciosa");
const tag = storableText("Tag that specifies the type of the plant", "indoor");

/** The request body: a plant as a client sends it. Its type is for clients, and JSON.stringify takes no `bigint`. */
export const NewPlantSchema = t.Object(
  { id, name, tag: t.Optional(tag) },
  {
    description: "A plant to be stored. Unknown members are ignored.",
    // Elysia closes objects by itself, and the API ignores what it does not know.
    additionalProperties: true,
  },
);

/** The response's body: a plant as a client sees it, without its id. */
export const PlantSchema = t.Object(
  { name, tag: t.Optional(tag) },
  { description: "A stored plant: `tag` is absent where none was sent." },
);
