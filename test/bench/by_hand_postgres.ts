// What PostgreSQL is usually given: one INSERT a request, over a pool of ten connections.
// DATABASE_URL, and the arguments of serve.
import { SQL } from "bun";

import { plants } from "../../src/database/postgres/schema.ts";
import { isRequired, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { COLUMNS, fieldsOf, type HandPlant, valuesOf } from "./by_hand_plant.ts";

const { DATABASE_URL = "", AUTH_TOKENS = "" } = process.env;
const { username, pathname } = new URL(DATABASE_URL);
const sql = new SQL({ url: DATABASE_URL, username, database: pathname.slice(1), max: 10 });
const columns = PLANT_FIELDS.map(
  (field) => `"${field}" ${plants[field].getSQLType()} ${isRequired(field) ? "NOT NULL" : ""}`,
);
await sql.unsafe(
  `CREATE TABLE IF NOT EXISTS plants (id bigint PRIMARY KEY, ${columns.join(", ")})`,
);

// The tagged template that one writes for these columns: its strings stand between the values.
const commas = PLANT_FIELDS.map(() => ", ");
const strings = [`INSERT INTO plants (${COLUMNS}) VALUES (`, ...commas, ") ON CONFLICT DO NOTHING"];
const insert = Object.defineProperty(strings, "raw", {
  value: strings,
}) as unknown as TemplateStringsArray;

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.headers.get("authorization") !== `Bearer ${AUTH_TOKENS}`)
      return new Response(null, { status: 401 });
    const plant = (await request.json()) as HandPlant;
    await sql(insert, ...valuesOf(plant));
    return Response.json(fieldsOf(plant));
  },
});
console.error(`listens on ${server.url.origin}`);
