// Elysia with Drizzle as their documentation shows it: schemas by `t`, the bearer plugin, one
// transaction a request.
import { bearer } from "@elysiajs/bearer";
import { eq } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { Elysia } from "elysia";

import { type ColumnValue, PLANT_FIELDS } from "../../../src/plant/plant.ts";
import { fieldsOf, type HandPlant, isRowOf, rowOf } from "../by_hand_plant.ts";
import { Failure, NewPlant, Plant } from "./schemas.ts";
import { openPlants } from "./sqlite.ts";

// Drizzle's text() hands any value on as it is.
const columns = PLANT_FIELDS.map((field) => [field, text().$type<ColumnValue>()] as const);
const plants = sqliteTable("plants", {
  id: integer().primaryKey(),
  ...Object.fromEntries(columns),
});
const database = drizzle({ client: openPlants() });

const app = new Elysia()
  .use(bearer())
  .post(
    "/plants",
    ({ body, status }) => {
      const plant = body as HandPlant;
      const row = database.transaction((transaction) => {
        const added = transaction
          .insert(plants)
          .values(rowOf(plant))
          .onConflictDoNothing()
          .returning()
          .get();
        return added ?? transaction.select().from(plants).where(eq(plants.id, plant.id)).get();
      });

      if (row === undefined || !isRowOf(plant, row))
        return status(409, { error: 4091, message: "conflict" });
      return fieldsOf(plant);
    },
    {
      beforeHandle({ bearer, status }) {
        if (bearer !== process.env["AUTH_TOKENS"])
          return status(401, { error: 4011, message: "unauthorized" });
        return undefined;
      },
      body: NewPlant,
      response: { 200: Plant, 401: Failure, 409: Failure },
    },
  )
  .listen({ hostname: "127.0.0.1", port: 0 });
console.error(`listens on http://127.0.0.1:${app.server?.port}`);
