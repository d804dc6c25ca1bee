import { connect } from "../../support/load.ts";
import { emptyDirectory, runToEnd } from "../../support/program.ts";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import { outcome, type Section } from "../report.ts";
import { rawRequest } from "../requests.ts";
import { figures, interleave, type Rounds } from "../rounds.ts";
import { startContender } from "../servers.ts";
import { median, ratios } from "../statistics.ts";

/** What a request can have wrong; `stored` is the plant that the others are compared with. */
interface Kind {
  readonly status: number;
  readonly request: string;
}

const STORED = "stored";

/** What a refused request costs, beside a stored plant on the same server. */
export async function refused(rounds: Rounds): Promise<Section> {
  const costs = await measureKinds(rounds);
  const cpu = (name: string) => figures(costs, name, ({ cpuMicros }) => cpuMicros);
  const rate = (name: string) => figures(costs, name, ({ perSecond }) => perSecond);
  const names = [...costs.keys()];
  const toStored = (name: string) => ratios(cpu(name), cpu(STORED));
  return {
    title: "A refused request",
    about: "CPU of a request that is refused, beside that of a stored plant on the same server, at 64 connections.",
    columns: ["request", "CPU µs", "/ stored", "a second"],
    rows: names.map((name) => [
      name,
      median(cpu(name)).toFixed(1),
      median(toStored(name)).toFixed(2),
      median(rate(name)).toFixed(0),
    ]),
    costs: Object.fromEntries(costs),
    goals: names
      .filter((name) => name !== STORED)
      .map((name) => outcome(`CPU of ${name} / stored`, toStored(name), GOALS.refused)),
  };
}

/** The costs of each kind, by its name: every round has each kind, and a stored plant. */
async function measureKinds({ rounds, warmUp, seconds }: Rounds) {
  using directory = emptyDirectory();
  const kinds = kindsOfRequests(await createMetricsToken(directory.path));
  await using server = await startContender(ours({ cwd: directory.path }));
  for (const [name, kind] of kinds) if (name !== STORED) await requireStatus(server.url, name, kind);
  const load = (kind: Kind, seconds: number) => server.load({ ...kind, connections: 64, seconds });
  await load(kinds.get(STORED) as Kind, warmUp);
  for (const kind of kinds.values()) await load(kind, 1);
  return await interleave(kinds, rounds, (kind) => load(kind, seconds));
}

async function requireStatus(url: string, name: string, { request, status }: Kind): Promise<void> {
  const connection = await connect(url);
  const response = await connection.request(request);
  connection.close();
  if (response?.status !== status) throw new Error(`${name}: expected status ${status}, got ${response?.status}`);
}

/** The bodies are about as long as that of a plant. */
function kindsOfRequests(metricsToken: string): ReadonlyMap<string, Kind> {
  const wrong = { id: "1000000000000001", name: 7, tag: null, more: "Monstera" };
  return new Map([
    [STORED, { status: 200, request: rawRequest() }],
    ["no token", { status: 401, request: rawRequest({ token: null }) }],
    ["wrong token", { status: 401, request: rawRequest({ token: "wrong-token-01234567890" }) }],
    ["token of another scope", { status: 403, request: rawRequest({ token: metricsToken }) }],
    ["unknown path", { status: 404, request: rawRequest({ path: "/plant" }) }],
    [
      "not JSON",
      { status: 400, request: rawRequest({ body: '{"id":1000000000000001,"name":"Monstera deliciosa","tag"' }) },
    ],
    ["not a plant", { status: 400, request: rawRequest({ body: JSON.stringify(wrong) }) }],
  ]);
}

async function createMetricsToken(cwd: string): Promise<string> {
  const [executable = ""] = ours().program;
  const { stdout } = await runToEnd({
    program: [executable],
    args: ["token", "create", "bench", "--scope", "metrics"],
    cwd,
  });
  return stdout.trim();
}
