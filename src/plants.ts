import { Elysia } from "elysia";
import { ErrorSchema, PlantStoreError } from "./errors.ts";
import type { GroupCommit } from "./group_commit.ts";
import { readJsonBody } from "./json_body.ts";
import { NewPlantSchema, PlantSchema } from "./plant.ts";

/** What the operation needs. */
export interface PlantsOptions {
  /** Where plants go. */
  readonly plants: Pick<GroupCommit, "add">;
  /** The most a body may have, in bytes. */
  readonly maxBodyBytes: number;
}

/** Stands for the body until the credentials are known to be good. */
const UNREAD = Symbol("unread body");

/** The operation: `POST /plants`, for a caller whose credentials are good. */
export function plantsApi({ plants, maxBodyBytes }: PlantsOptions) {
  return new Elysia({ name: "plants" })
    .model({ NewPlant: NewPlantSchema, Plant: PlantSchema, Error: ErrorSchema })
    .post(
      "/plants",
      async ({ body: { id, name, tag } }) => {
        const plant = tag === undefined ? { name } : { name, tag };
        const outcome = await plants.add({ id: BigInt(id), ...plant });
        if (outcome === "conflict") throw new PlantStoreError("id_taken");
        return plant;
      },
      {
        // Elysia parses before it asks for credentials: this parser reads nothing, and the body is read after them.
        parse: () => UNREAD,
        transform(context) {
          return readJsonBody(context.request, maxBodyBytes).then((body) => {
            context.body = body as typeof context.body;
          });
        },
        body: "NewPlant",
        response: {
          200: "Plant",
          400: "Error",
          401: "Error",
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
            "Stores a plant. A 200 means that it is on disk. Sending the same plant again is safe and is answered 200 again; after an error or a lost connection, send it again.",
          security: [{ bearer: [] }],
        },
      },
    );
}
