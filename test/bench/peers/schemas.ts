import { t } from "elysia";

import { isRequired, kindOf, PLANT_FIELDS } from "../../../src/plant/plant.ts";

const fields = Object.fromEntries(
  PLANT_FIELDS.map((field) => {
    const schema = kindOf(field) === "text" ? t.String() : t.Any();
    return [field, isRequired(field) ? schema : t.Optional(schema)];
  }),
);

/** The body of a 200. */
export const Plant = t.Object(fields);

/** The body of a request. */
export const NewPlant = t.Object({ id: t.Integer(), ...fields });

/** The body of a refusal. */
export const Failure = t.Object({ error: t.Integer(), message: t.String() });
