import type { Connection } from "../generated_client.ts";

/**
 * What orval's functions send requests with: its `mutator`, which knows the server and the
 * credentials.
 */
export async function orvalFetch<T>(
  path: string,
  init: RequestInit & { connection?: Connection },
): Promise<T> {
  const { connection, ...request } = init;
  if (connection === undefined) throw new Error("There is no server to connect to");
  const { baseUrl, token, headers, fetch } = connection;
  const all = { ...request.headers, authorization: `Bearer ${token}`, ...headers };
  const response = await fetch(`${baseUrl}${path}`, { ...request, headers: all });
  return { data: await response.json(), status: response.status, headers: response.headers } as T;
}
