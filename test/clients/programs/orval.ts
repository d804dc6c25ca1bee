import {
  createPlant as callCreatePlant,
  type createPlantResponse,
  type Error,
} from "../generated/orval.ts";
import type { CreatePlant, ErrorStatus, Same } from "../generated_client.ts";

export const createPlant: CreatePlant = async (plant, connection) => {
  const response = await callCreatePlant(plant, { connection });
  if (response.status === 200) return { status: response.status, ...response.data };
  true satisfies Same<typeof response.data, Error>;
  return { status: response.status, ...response.data };
};

true satisfies Same<Exclude<createPlantResponse["status"], 200>, ErrorStatus>;

export const wrong = [
  // @ts-expect-error An id is not a string.
  () => callCreatePlant({ id: "1", name: "Fern" }),
  // @ts-expect-error A plant has a name.
  () => callCreatePlant({ id: 1 }),
];
