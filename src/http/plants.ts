import { Elysia } from "elysia";
import { PlantStoreError } from "../errors.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import { readJsonBody } from "./body.ts";
import { parsePlant } from "../plant/plant_json.ts";
import { ErrorSchema, NewPlantSchema, PlantSchema } from "./schemas.ts";

/** What the operation needs. */
export interface PlantsOptions {
  /** Where plants go. */
  readonly plants: Pick<GroupCommit, "add">;
  /** The most a body may have, in bytes. */
  readonly maxBodyBytes: number;
}

/** The operation: `POST /plants`, for a caller whose credentials are good. */
export function plantsApi({ plants, maxBodyBytes }: PlantsOptions) {
  return new Elysia({ name: "plants" })
    .model({ NewPlant: NewPlantSchema, Plant: PlantSchema, Error: ErrorSchema })
    .post(
      "/plants",
      async ({ request, headers }) => {
        const plant = parsePlant(await readJsonBody(request, headers, maxBodyBytes));
        const outcome = await plants.add(plant);
        if (outcome === "conflict") throw new PlantStoreError("id_taken");
        // Types do not hold JavaScript: only what says that the plant is stored may become 200.
        if (outcome !== "added" && outcome !== "present") {
          throw new TypeError(`Unknown outcome of add(): ${String(outcome)}`);
        }
        return plant.tag === undefined ? { name: plant.name } : { name: plant.name, tag: plant.tag };
      },
      {
        // Elysia would parse and validate before it asks for credentials: the handler does, and this schema documents.
        parse: "none",
        body: "NewPlant",
        response: {
          200: "Plant",
          400: "Error",
          401: "Error",
          403: "Error",
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
            "Stores a plant. A 200 means that it is on disk. After a lost connection or a 5xx, send the same plant again: it is stored once.",
          security: [{ bearer: [] }],
        },
      },
    );
}
