import { treaty } from "@elysiajs/eden";

import type { createApp } from "../../src/mod.ts";
import type { CreatePlant } from "./generated_client.ts";

/** A client of no document: Eden takes its types from those of the app. */
export const createPlant: CreatePlant = async (plant, { baseUrl, token, headers = {}, fetch }) => {
  const fetcher = fetch as typeof globalThis.fetch;
  const { plants } = treaty<ReturnType<typeof createApp>>(baseUrl, { fetcher, parseDate: false });
  const sent = { headers: { authorization: `Bearer ${token}`, ...headers } };
  const { data, error, status } = await plants.post(plant, sent);

  if (data !== null) return { status: 200, ...data };
  // Eden gives what `fetch` threw as an error, too; and 422 is Elysia's own, which the app never
  // sends.
  if (error.value instanceof Error || error.status === 422) throw error.value;

  return { status, ...error.value };
};
