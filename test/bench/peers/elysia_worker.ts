// The lean program on the packages of plant-store: Elysia with its schemas and its body parser, and
// the bearer plugin. Beside it, plant-store shows what it adds to them. It takes the id `"9"`, a
// string, as Elysia's `t.Integer` does.
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";

import { addInWorker } from "../by_hand_batches.ts";
import { fieldsOf, type HandPlant } from "../by_hand_plant.ts";
import { Failure, NewPlant, Plant } from "./schemas.ts";

const app = new Elysia()
  .use(bearer())
  .post(
    "/plants",
    async ({ body, status }) => {
      const plant = body as HandPlant;
      if ((await addInWorker(plant)) === "conflict") {
        return status(409, {
          error: 4091,
          message: "`id` is taken by a different plant; choose another id",
        });
      }

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
  .listen({ hostname: "127.0.0.1", port: 0, development: false, reusePort: false });
console.error(`listens on http://127.0.0.1:${app.server?.port}`);
