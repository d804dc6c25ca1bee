import { expect, setDefaultTimeout, test } from "bun:test";
import { bearer, post, TOKEN } from "../support/client.ts";
import { TEST_TIMEOUT_MS, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("GET /metrics counts requests, plants, commits and the process, for a token in the header", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
  expect((await post(server.url)).status).toBe(200);
  expect((await post(server.url)).status).toBe(200);
  expect((await post(server.url, { id: 1, name: "Ivy" })).status).toBe(409);
  expect((await post(server.url, "{")).status).toBe(400);
  expect((await fetch(`${server.url}/made-up-by-a-client`)).status).toBe(404);
  const response = await fetch(`${server.url}/metrics`, { headers: bearer() });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  const lines = (await response.text()).split("\n");
  for (const line of [
    'plant_store_requests_total{path="/plants",method="POST",status="200"} 2',
    'plant_store_requests_total{path="other",method="GET",status="404"} 1',
    'plant_store_request_duration_seconds_count{path="/plants"} 4',
    'plant_store_plants_total{outcome="added"} 1',
    'plant_store_plants_total{outcome="present"} 1',
    'plant_store_plants_total{outcome="conflict"} 1',
    "plant_store_batch_plants_sum 3",
    "plant_store_commit_duration_seconds_count 3",
    "plant_store_queue_plants 0",
    "plant_store_checkpoint_failures_total 0",
  ]) {
    expect(lines).toContain(line);
  }
  const memory = lines.find((line) => line.startsWith("process_resident_memory_bytes "));
  expect(Number(memory?.split(" ")[1])).toBeGreaterThan(1e6);
  for (const path of ["/metrics", `/metrics?access_token=${TOKEN}`]) {
    expect((await fetch(server.url + path)).status).toBe(401);
  }
  expect((await fetch(`${server.url}/metrics`, { method: "POST", headers: bearer() })).status).toBe(405);
});
