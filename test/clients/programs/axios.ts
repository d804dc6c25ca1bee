import axios from "axios";

import { allowBigInts, int64 } from "./client.ts";

/** Every runtime has it. */
declare const process: { readonly argv: readonly string[] };

// Sends the largest id in both ways, and prints the statuses.
const [, , baseUrl = "", token = ""] = process.argv;
const viaInt64 = await statusOf(int64(9223372036854775807n));
allowBigInts();
console.log(JSON.stringify([viaInt64, await statusOf(9223372036854775807n)]));

async function statusOf(id: number | bigint): Promise<number> {
  const options = { headers: { authorization: `Bearer ${token}` }, validateStatus: () => true };
  return (await axios.post(`${baseUrl}/plants`, { id, name: "Fern" }, options)).status;
}
