// Hono on Bun with bun:sqlite, one transaction a request.
import { Hono } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { validator } from "hono/validator";

import { isPlant } from "../by_hand_http.ts";
import { openPlants } from "./sqlite.ts";

const database = openPlants();
const insert = database.prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
const select = database.prepare<{ name: string; tag: string | null }, [number]>(
  "SELECT name, tag FROM plants WHERE id = ?",
);

const app = new Hono();
app.use("/plants", bearerAuth({ token: process.env["AUTH_TOKENS"] ?? "" }));
app.post(
  "/plants",
  validator("json", (value, context) =>
    isPlant(value) ? value : context.json({ error: 4002, message: "not a plant" }, 400),
  ),
  (context) => {
    const { id, name, tag } = context.req.valid("json");
    if (insert.run(id, name, tag ?? null).changes === 0) {
      const stored = select.get(id);
      if (stored?.name !== name || stored.tag !== (tag ?? null)) {
        return context.json({ error: 4091, message: "conflict" }, 409);
      }
    }

    return context.json(tag === undefined ? { name } : { name, tag });
  },
);

const server = Bun.serve({ hostname: "127.0.0.1", port: 0, development: false, fetch: app.fetch });
console.error(`listens on http://127.0.0.1:${server.port}`);
