import { createClient } from "../generated/hey_api/client";
import { createPlant as callCreatePlant, type CreatePlantErrors, type Error } from "../generated/hey_api";
import type { Connection, CreatePlant, ErrorStatus, Same } from "../generated_client.ts";

export const createPlant: CreatePlant = async (plant, connection) => {
  const { headers = {} } = connection;
  const { data, error, response } = await callCreatePlant({ client: connect(connection), body: plant, headers });
  if (data !== undefined) return { status: 200, ...data };
  true satisfies Same<typeof error, Error>;
  // Without a response there was no connection, and `error` is what `fetch` threw.
  if (response === undefined) throw error;
  return { status: response.status, ...error };
};

function connect({ baseUrl, token, fetch }: Connection) {
  return createClient({ baseUrl, auth: token, fetch: fetch as typeof globalThis.fetch });
}

true satisfies Same<keyof CreatePlantErrors, ErrorStatus>;

export const wrong = [
  // @ts-expect-error An id is no string.
  () => callCreatePlant({ body: { id: "1", name: "Fern" } }),
  // @ts-expect-error A plant has a name.
  () => callCreatePlant({ body: { id: 1 } }),
];
