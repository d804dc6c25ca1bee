import axios, { create } from "axios";

import { int64 } from "./client.ts";
import { FERN } from "./fern.ts";

/** Every runtime has it. */
declare const process: { readonly argv: readonly string[] };

// Sends the largest id in both ways, and prints the statuses.
const [, , baseUrl = "", token = ""] = process.argv;
const viaInt64 = await statusOf(axios, int64(9223372036854775807n));
// As the guide says.
const client = create({
  headers: { "content-type": "application/json" },
  transformRequest: (plant: unknown) =>
    JSON.stringify(plant, (_, value) => (typeof value === "bigint" ? int64(value) : value)),
});
console.log(JSON.stringify([viaInt64, await statusOf(client, 9223372036854775807n)]));

async function statusOf({ post }: Pick<typeof axios, "post">, id: number | bigint) {
  const options = { headers: { authorization: `Bearer ${token}` }, validateStatus: () => true };
  return (await post(`${baseUrl}/plants`, { id, ...FERN }, options)).status;
}
