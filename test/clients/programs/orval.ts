import {
  createPlant as callCreatePlant,
  type createPlantResponse,
  type Error,
} from "../generated/orval.ts";
import type { CreatePlant, ErrorStatus, Same } from "../generated_client.ts";
import { FERN } from "./fern.ts";

export const createPlant: CreatePlant = async (plant, connection) => {
  const response = await callCreatePlant(plant, { connection });
  if (response.status === 200) return { status: response.status, ...response.data };
  true satisfies Same<typeof response.data, Error>;
  return { status: response.status, ...response.data };
};

// It also knows every other status that HTTP has, with the body of the document's `default`.
true satisfies ErrorStatus extends createPlantResponse["status"] ? true : false;

export const wrong = [
  // @ts-expect-error An id is not a string.
  () => callCreatePlant({ id: "1", ...FERN }),
  // @ts-expect-error A plant has more than an id.
  () => callCreatePlant({ id: 1 }),
];
