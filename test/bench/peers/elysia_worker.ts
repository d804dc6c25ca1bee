// The lean program on the packages of plant-store: Elysia with its schemas and its body parser, and
// the bearer plugin. Beside it, plant-store shows what it adds to them. It takes the id `"9"`, a
// string, as Elysia's `t.Integer` does.
import { bearer } from "@elysiajs/bearer";
import { Elysia, t } from "elysia";

import { addInWorker } from "../by_hand_batches.ts";

const Plant = t.Object({ name: t.String(), tag: t.Optional(t.String()) });
const NewPlant = t.Object({ id: t.Integer(), name: t.String(), tag: t.Optional(t.String()) });
const Failure = t.Object({ error: t.Integer(), message: t.String() });

const app = new Elysia()
  .use(bearer())
  .post(
    "/plants",
    async ({ body, status }) => {
      const { name, tag } = body;
      if ((await addInWorker(body)) === "conflict") {
        return status(409, {
          error: 4091,
          message: "`id` is taken by a different plant; choose another id",
        });
      }

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
  .listen({ hostname: "127.0.0.1", port: 0, development: false, reusePort: false });
console.error(`listens on http://127.0.0.1:${app.server?.port}`);
