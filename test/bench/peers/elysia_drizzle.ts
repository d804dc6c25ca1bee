// Elysia with Drizzle as their documentation shows it: schemas by `t`, the bearer plugin, one
// transaction a request.
import { bearer } from "@elysiajs/bearer";
import { eq } from "drizzle-orm";
import { drizzle } from "drizzle-orm/bun-sqlite";
import { integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { Elysia, t } from "elysia";

import { openPlants } from "./sqlite.ts";

const plants = sqliteTable("plants", {
  id: integer().primaryKey(),
  name: text().notNull(),
  tag: text(),
});
const database = drizzle({ client: openPlants() });
const Plant = t.Object({ name: t.String(), tag: t.Optional(t.String()) });
const NewPlant = t.Composite([t.Object({ id: t.Integer() }), Plant]);
const Failure = t.Object({ error: t.Integer(), message: t.String() });

const app = new Elysia()
  .use(bearer())
  .post(
    "/plants",
    ({ body: { id, name, tag }, status }) => {
      const plant = database.transaction((transaction) => {
        const added = transaction
          .insert(plants)
          .values({ id, name, tag })
          .onConflictDoNothing()
          .returning()
          .get();
        return added ?? transaction.select().from(plants).where(eq(plants.id, id)).get();
      });

      if (plant?.name !== name || plant.tag !== (tag ?? null))
        return status(409, { error: 4091, message: "conflict" });
      return tag === undefined ? { name } : { name, tag };
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
