import { PLANT_FIELDS } from "../../../src/plant/plant.ts";
import { TOKEN } from "../../support/client.ts";
import { connect, goodRequest, wireBytes } from "../../support/load.ts";
import type { WireRequest } from "../../support/oracle.ts";
import { emptyDirectory, runToEnd } from "../../support/program.ts";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { costTable, outcome, type Section } from "../report.ts";
import { interleave, relative, type Rounds } from "../rounds.ts";
import { PLANT } from "../run_load.ts";
import { startContender } from "../servers.ts";

/** A request, and the status of its response. */
interface Kind {
  readonly status: number;
  readonly request: string;
}

const STORED = "stored";

/** What a refused request costs, beside a stored plant on the same server. */
export async function refused({ rounds, warmUp, seconds }: Rounds): Promise<Section> {
  using directory = emptyDirectory();
  const kinds = kindsOfRequests(await createMetricsToken(directory.path));
  await using server = await startContender(ours({ cwd: directory.path }));

  for (const [name, kind] of kinds)
    if (name !== STORED) await requireStatus(server.url, name, kind);
  const load = (kind: Kind, seconds: number) => server.load({ ...kind, connections: 64, seconds });
  await load(kinds.get(STORED) as Kind, warmUp);
  for (const kind of kinds.values()) await load(kind, 1);

  const costs = await interleave(kinds, rounds, (kind) => load(kind, seconds));
  const names = [...kinds.keys()].filter((name) => name !== STORED);

  return {
    title: "A refused request",
    about:
      "CPU of a request that is refused, beside that of a stored plant on the same server, at 64 connections.",
    ...costTable(costs, "request", [
      ["CPU µs", "cpuMicros", 1],
      ["a second", "perSecond", 0],
    ]),
    goals: names.map((name) =>
      outcome(`CPU of ${name} / stored`, relative(costs, "cpuMicros", name, STORED), GOALS.refused),
    ),
  };
}

async function requireStatus(url: string, name: string, { request, status }: Kind): Promise<void> {
  const connection = await connect(url);
  const response = await connection.request(request);
  connection.close();
  if (response?.status !== status)
    throw new Error(`${name}: expected status ${status}, got ${response?.status}`);
}

/**
 * What a request can have wrong, each in one thing. The bodies are about as long as that of a
 * plant.
 */
function kindsOfRequests(metricsToken: string): ReadonlyMap<string, Kind> {
  const kind = (status: number, body = PLANT, change: Partial<WireRequest> = {}): Kind => ({
    status,
    request: wireBytes({ ...goodRequest(TOKEN, body), ...change }).toString(),
  });

  const good = PLANT.replace(/0{16}/, "1000000000000001");
  const nulls = PLANT_FIELDS.map((field) => `"${field}":null`).join(",");

  return new Map([
    [STORED, kind(200)],
    ["no token", kind(401, PLANT, { authorization: [] })],
    ["wrong token", kind(401, PLANT, { authorization: ["Bearer wrong-token-01234567890"] })],
    ["token of another scope", kind(403, PLANT, { authorization: [`Bearer ${metricsToken}`] })],
    ["unknown path", kind(404, PLANT, { path: "/plant" })],
    ["not JSON", kind(400, good.slice(0, good.lastIndexOf(":")))],
    ["not a plant", kind(400, `{"id":"1000000000000001",${nulls},"more":"Monstera"}`)],
  ]);
}

async function createMetricsToken(cwd: string): Promise<string> {
  const args = ["token", "create", "bench", "--scope", "metrics"];
  return (await runToEnd({ program: ours().program, args, cwd })).stdout.trim();
}
