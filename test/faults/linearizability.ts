import type { NewPlant, Plant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { connect, postBytes, printedSeed, randomFrom, verdictOf } from "../support/load.ts";
import { fern, ivy, moss, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { runToEnd, startServer } from "../support/program.ts";
import { scaled } from "../support/scale.ts";
import { type Operation, violations } from "./history.ts";

/** How many ids are in use at once: few, so that clients meet. */
const IDS_AT_ONCE = 4;
/** How many operations an id gets before another one takes its place. */
const OPERATIONS_AN_ID = 16;
/** The plants that compete for an id. */
const RIVALS = [fern(), ivy({ [OPTIONAL_TEXT]: "" }), moss(), fern({ [TEXT]: "" })];

/** Clients that add plants to servers, and a record of what they saw. */
type Recording = ReturnType<typeof startRecording>;

/**
 * Starts clients that add rivals for a few ids without a pause, each to a server of its choice.
 *
 * @param urls The servers that run now.
 */
function startRecording(
  urls: () => readonly string[],
  random: () => number,
  { clients = 12 } = {},
) {
  const history: Operation[] = [];
  const over = new AbortController();
  let sent = 0;

  /** The next plant: one of the rivals for one of the ids in use. */
  function next(): NewPlant {
    const window = Math.floor(sent++ / (IDS_AT_ONCE * OPERATIONS_AN_ID));
    const id = window * IDS_AT_ONCE + Math.floor(random() * IDS_AT_ONCE);
    return { ...(RIVALS[Math.floor(random() * RIVALS.length)] as NewPlant), id: BigInt(id) };
  }

  async function client(): Promise<void> {
    while (!over.signal.aborted) {
      const all = urls();
      const url = all[Math.floor(random() * all.length)];
      const connection = url === undefined ? undefined : await connect(url).catch(() => undefined);
      if (connection === undefined) {
        await Bun.sleep(5);
        continue;
      }

      while (!over.signal.aborted && !connection.isClosed()) {
        const response = await record(next(), (plant) => connection.request(postBytes(plant)));
        if (response?.headers.get("connection") === "close") break;
      }
      connection.close();
    }
  }

  /** Records an add. Whatever is neither 200 nor 409 leaves its outcome open. */
  async function record<Response extends Awaited<ReturnType<Connection["request"]>>>(
    plant: NewPlant,
    add: (plant: NewPlant) => Promise<Response>,
  ): Promise<Response> {
    const invoked = performance.now();
    const response = await add(plant);
    const verdict = response === undefined ? "none" : verdictOf(response);
    const outcome = OUTCOMES[verdict] ?? "unknown";
    const returned = outcome === "unknown" ? Number.POSITIVE_INFINITY : performance.now();
    history.push({ id: plant.id, plant, outcome, invoked, returned });
    return response;
  }

  const ended = Promise.all(Array.from({ length: clients }, client));

  return {
    history,
    /** How many operations are recorded. */
    size: () => history.length,

    /** Waits for so many more operations. */
    async more(count: number): Promise<void> {
      const enough = history.length + count;
      while (history.length < enough) await Bun.sleep(2);
    },

    /** Records what a reader of all plants finds: for each id that was sent so far, its plant. */
    async read(readAll: () => Promise<readonly NewPlant[] | undefined>): Promise<void> {
      const ids = new Set(history.map(({ id }) => id));
      const invoked = performance.now();
      const plants = await readAll();
      if (plants === undefined) return;

      const returned = performance.now();
      const found = new Map(plants.map((plant) => [plant.id, plant]));
      for (const id of ids)
        history.push({ id, plant: found.get(id), outcome: "read", invoked, returned });
    },

    async stop(): Promise<void> {
      over.abort();
      await ended;
    },
  };
}

type Connection = Awaited<ReturnType<typeof connect>>;

const OUTCOMES: Readonly<Record<string, Operation["outcome"]>> = {
  "200": "stored",
  "409/4091": "conflict",
};

/** How often each fault happens in a history. */
const FAULTS = scaled(3, 8);
/** Operations before each fault, and after it. */
const BETWEEN = 150;

/** What a fault can reach. */
export interface World {
  readonly url: string;
  readonly program: readonly string[];
  readonly random: () => number;
  readonly recording: Recording;
  readonly servers: Awaited<ReturnType<typeof startServer>>[];
  /** Kills a server with `kill -9`, and starts another one in its place. */
  replace(index?: number): Promise<void>;
}

/** Where and how a history is recorded. */
export interface RecordOptions {
  readonly url: string;
  /** How many servers run at once. @default {1} */
  readonly servers?: number;
  /** @default the executable */
  readonly program?: readonly string[];
}

/** Records a history while `fault` happens, ends it with a read, and judges it. */
export async function record(
  name: string,
  fault: (world: World) => Promise<unknown>,
  { url, servers: count = 1, program = executable() }: RecordOptions,
): Promise<readonly string[]> {
  const random = randomFrom(printedSeed(name));
  const env = { DATABASE_URL: url, AUTH_TOKENS: TOKEN, REQUEST_TIMEOUT_MS: "1000" };
  const servers: World["servers"] = [];
  await using stack = new AsyncDisposableStack();
  stack.defer(
    async () => void (await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()))),
  );
  const startOne = () => startServer({ env, program });
  for (let index = 0; index < count; index++) servers.push(await startOne());

  const recording = startRecording(() => servers.map((server) => server.url), random);
  const world: World = {
    url,
    program,
    random,
    recording,
    servers,
    async replace(index = 0) {
      const old = servers[index];
      old?.child.kill("SIGKILL");
      await old?.child.exited;
      servers[index] = await startOne();
      await old?.[Symbol.asyncDispose]();
    },
  };

  for (let times = 0; times < FAULTS; times++) {
    await recording.more(BETWEEN);
    await fault(world);
  }
  await recording.more(BETWEEN);
  await recording.stop();
  await recording.read(() => exportedPlants(world));

  const found = violations(recording.history);
  const unknown = recording.history.filter(({ outcome }) => outcome === "unknown").length;
  console.log(`| ${name} | ${recording.size()} operations, ${unknown} unknown | ${found.length} |`);
  return found;
}

/** What `plant-store export` prints; `undefined` if it fails. */
export async function exportedPlants({
  url,
  program,
}: World): Promise<readonly NewPlant[] | undefined> {
  const { exitCode, stdout } = await runToEnd({ program, args: ["export", "--database", url] });
  if (exitCode !== 0) return undefined;
  const lines = stdout.split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    const plant = JSON.parse(line) as Plant & { readonly id: number };
    return { ...plant, id: BigInt(plant.id) };
  });
}
