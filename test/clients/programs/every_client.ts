import { fetchWithRetries, int64 } from "./client.ts";
import { FERN } from "./fern.ts";
import { createPlant as heyApi } from "./hey_api.ts";
import { createPlant as openapiFetch } from "./openapi_fetch.ts";
import { createPlant as orval } from "./orval.ts";

/** Every runtime has it. */
declare const process: { readonly argv: readonly string[] };

// Sends a plant by each client, with the largest ids.
const [, , baseUrl = "", token = ""] = process.argv;
const connection = { baseUrl, token, fetch: fetchWithRetries };
console.log(
  JSON.stringify([
    await openapiFetch({ id: int64(9223372036854775805n), ...FERN }, connection),
    await heyApi({ id: int64(9223372036854775806n), ...FERN }, connection),
    await orval({ id: int64(9223372036854775807n), ...FERN }, connection),
  ]),
);
