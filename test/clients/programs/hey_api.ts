import {
  createPlant as callCreatePlant,
  type CreatePlantErrors,
  type Error,
} from "../generated/hey_api";
import { client } from "../generated/hey_api/client.gen";
import type { CreatePlant, ErrorStatus, Same } from "../generated_client.ts";
import { FERN } from "./fern.ts";

export const createPlant: CreatePlant = async (plant, { baseUrl, token, headers = {}, fetch }) => {
  // Not a client of its own in each call: it is handed on to `new Request()`, and Deno takes its
  // `client` for its own.
  client.setConfig({ baseUrl, auth: token, fetch: fetch as typeof globalThis.fetch });
  const { data, error, response } = await callCreatePlant({ body: plant, headers });
  if (data !== undefined) return { status: 200, ...data };
  true satisfies Same<typeof error, Error>;

  // Without a response there was no connection, and `error` is what `fetch` threw.
  if (response === undefined) throw error;
  return { status: response.status, ...error };
};

true satisfies Same<keyof CreatePlantErrors, ErrorStatus | "default">;

export const wrong = [
  // @ts-expect-error An id is not a string.
  () => callCreatePlant({ body: { id: "1", ...FERN } }),
  // @ts-expect-error A plant has more than an id.
  () => callCreatePlant({ body: { id: 1 } }),
];
