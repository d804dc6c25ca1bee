import createClient from "openapi-fetch";

import type { Connection, CreatePlant, ErrorStatus, Same } from "../generated_client.ts";
import { FERN } from "./fern.ts";
import type { components, paths } from "./plants.d.ts";

export const createPlant: CreatePlant = async (plant, connection) => {
  const { data, error, response } = await connect(connection).POST("/plants", { body: plant });
  if (data !== undefined) return { status: 200, ...data };
  error satisfies components["schemas"]["Error"];
  true satisfies Same<(typeof error)["error"], number>;
  return { status: response.status, ...error };
};

function connect({ baseUrl, token, headers, fetch }: Connection) {
  return createClient<paths>({
    baseUrl,
    fetch,
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
}

true satisfies Same<
  Exclude<keyof paths["/plants"]["post"]["responses"], 200>,
  ErrorStatus | "default"
>;

export const wrong = (connection: Connection) => [
  // @ts-expect-error An id is not a string.
  connect(connection).POST("/plants", { body: { id: "1", ...FERN } }),
  // @ts-expect-error A plant has more than an id.
  connect(connection).POST("/plants", { body: { id: 1 } }),
];
