// Hono on Bun with bun:sqlite, one transaction a request.
import { Hono } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { validator } from "hono/validator";

import { fieldsOf, isPlant } from "../by_hand_plant.ts";
import { openPlants, storeInto } from "./sqlite.ts";

const store = storeInto(openPlants());

const app = new Hono();
app.use("/plants", bearerAuth({ token: process.env["AUTH_TOKENS"] ?? "" }));
app.post(
  "/plants",
  validator("json", (value, context) =>
    isPlant(value) ? value : context.json({ error: 4002, message: "not a plant" }, 400),
  ),
  (context) => {
    const plant = context.req.valid("json");
    if (store(plant) === "conflict") return context.json({ error: 4091, message: "conflict" }, 409);
    return context.json(fieldsOf(plant));
  },
);

const server = Bun.serve({ hostname: "127.0.0.1", port: 0, development: false, fetch: app.fetch });
console.error(`listens on http://127.0.0.1:${server.port}`);
