import { Database } from "bun:sqlite";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { kindOf, PLANT_FIELDS } from "../../../src/plant/plant.ts";
import { TOKEN } from "../../support/client.ts";
import { postBytes } from "../../support/load.ts";
import { fern, jsonOf, membersWith, TEXT } from "../../support/plants.ts";
import { emptyDirectory, freePort, start } from "../../support/program.ts";
import { CREDENTIALS, ours, OURS_NAME } from "../contenders.ts";
import { costTable, median, type Section } from "../report.ts";
import { interleave, relative, type Rounds, steadyCost } from "../rounds.ts";
import { type LoadOptions, PLANT } from "../run_load.ts";
import { type Cost, loadOn } from "../servers.ts";

const NAME = "PocketBase";
const { POCKETBASE } = process.env;

/**
 * A stored plant beside PocketBase, whose program the variable `POCKETBASE` names: the one of its
 * release, or `examples/base` of its repository. Its collection has ids of digits and takes the
 * records of users who are logged in.
 */
export async function pocketbase(rounds: Rounds): Promise<Section> {
  const title = "Beside PocketBase";
  if (POCKETBASE === undefined) {
    const missing = [`${NAME}: the variable POCKETBASE does not name its program`];
    return { title, about: "A stored plant.", columns: [], rows: [], missing };
  }

  await using our = await startOurs();
  await using their = await startPocketBase(POCKETBASE);
  const servers = new Map([our, their].map((server) => [server.name, server]));

  const rows: string[][] = [];
  for (const connections of [1, 64, 256]) {
    for (const { load } of servers.values()) await load({ connections, seconds: rounds.warmUp });
    const costs = await interleave(servers, rounds.rounds, (server) =>
      steadyCost(server, { connections, seconds: rounds.seconds }),
    );

    const table = costTable(costs, "program", [
      ["CPU µs/plant", "cpuMicros", 1],
      ["plants/s", "perSecond", 0],
    ]);
    for (const figure of [1, 2]) {
      const what = `${table.columns[figure]}, ${connections} connections`;
      rows.push([what, ...table.rows.map((row) => row[figure] ?? "")]);
    }

    const times = median(relative(costs, "cpuMicros", NAME, OURS_NAME)).toFixed(1);
    rows.push([`CPU of ${NAME}, ${connections} connections`, "", `${times} times`]);
  }

  for (const [what, observe] of Object.entries(BEHAVIORS))
    rows.push([what, await observe(our), await observe(their)]);

  const columns = ["", our.name, their.name];
  return { title, about: "What a stored plant costs, and what is kept.", columns, rows };
}

/** A server that stores plants into a file of SQLite. */
interface Store {
  readonly name: string;
  readonly pid: number;
  readonly servers: number;
  load(options: LoadOptions): Promise<Cost>;
  /** Sends a plant, and returns the status. */
  post(body: string): Promise<number>;
  /** The plant in the file whose id is `LIKE` this, and its {@linkcode TEXT}. */
  stored(id: string): { readonly id: unknown; readonly text: string } | null;
}

/** What a client of either meets, in words for the table. */
const BEHAVIORS: Readonly<Record<string, (store: Store) => Promise<string>>> = {
  "fsyncs for 40 plants, one after the other": fsyncs,

  async "the same plant again"({ post }) {
    await post(jsonOf(fern({ id: 70 })));
    return String(await post(jsonOf(fern({ id: 70 }))));
  },

  async "the id 9007199254740993"({ post, stored }) {
    const status = await post(jsonOf(fern({ id: 9_007_199_254_740_993n })));
    return `${status}, stored as ${stored("900719925474099_")?.id}`;
  },

  async [`a ${TEXT} that is a lone surrogate`]({ post, stored }) {
    const status = await post(`{"id":71,${membersWith(String.raw`"\ud800"`)}}`);
    const character = stored("71")?.text.codePointAt(0);
    if (character === undefined) return String(status);
    return `${status}, stored as U+${character.toString(16).toUpperCase()}`;
  },
};

/** Counts the fsyncs of a server that gets 40 plants, by strace. */
async function fsyncs({ pid, post }: Store): Promise<string> {
  if (Bun.which("strace") === null) return "not counted: there is no strace";

  using directory = emptyDirectory();
  const log = join(directory.path, "strace");
  const trace = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", log, "-p", String(pid)];
  const tracer = Bun.spawn(trace, { stdout: "ignore", stderr: "pipe" });
  // It says so once it sees the system calls.
  await tracer.stderr.getReader().read();

  for (let id = 100; id < 140; id++) await post(jsonOf(fern({ id })));

  tracer.kill("SIGINT");
  await tracer.exited;
  return String(readFileSync(log, "utf8").match(/\bf(data)?sync\(\d/g)?.length ?? 0);
}

async function startOurs(): Promise<Store & AsyncDisposable> {
  const { name, program } = ours();
  const server = start({ program, args: ["--port", "0"], env: CREDENTIALS });
  const [, url = ""] = (await server.stderr.until(/listens on (http:\S+?)[,\s"]/)) ?? [];

  const api = { url, path: "/plants", token: TOKEN };
  return { name, ...storeOf(server, api, join(server.cwd, "plants.db")) };
}

/** The collection, and a user whose password is {@linkcode TOKEN}. */
const MIGRATION = `migrate((app) => {
  app.save(new Collection({
    type: "base",
    name: "plants",
    createRule: "@request.auth.id != ''",
    fields: [
      { name: "id", type: "text", system: true, primaryKey: true, required: true, min: 1, max: 20, pattern: "^-?[0-9]+$" },
      ${PLANT_FIELDS.map((field) => `{ name: "${field}", type: "${kindOf(field) === "text" ? "text" : "json"}" }`)},
    ],
  }));
  const user = new Record(app.findCollectionByNameOrId("users"), { email: "client@example.org", verified: true });
  user.setPassword("${TOKEN}");
  app.save(user);
  if ($os.getenv("LOG") === "off") {
    const settings = app.settings();
    settings.logs.maxDays = 0;
    app.save(settings);
  }
});`;

async function startPocketBase(program: string): Promise<Store & AsyncDisposable> {
  const directory = emptyDirectory();
  const migrations = join(directory.path, "migrations");
  mkdirSync(migrations);
  writeFileSync(join(migrations, "1_plants.js"), MIGRATION);

  const host = `127.0.0.1:${freePort()}`;
  const data = join(directory.path, "data");
  const args = ["serve", `--http=${host}`, `--dir=${data}`, `--migrationsDir=${migrations}`];
  const server = start({ program: [program], args, cwd: directory.path, env: { LOG: "off" } });

  const url = `http://${host}`;
  const api = { url, path: "/api/collections/plants/records", token: await logIn(url) };
  const { [Symbol.asyncDispose]: end, ...store } = storeOf(server, api, join(data, "data.db"));
  return {
    name: NAME,
    ...store,
    async [Symbol.asyncDispose]() {
      await end();
      directory[Symbol.dispose]();
    },
  };
}

/** Waits until PocketBase responds, and returns a token. */
async function logIn(url: string): Promise<string> {
  const body = JSON.stringify({ identity: "client@example.org", password: TOKEN });
  const init = { method: "POST", headers: { "content-type": "application/json" }, body };

  for (let attempt = 1; ; attempt++) {
    try {
      const response = await fetch(`${url}/api/collections/users/auth-with-password`, init);
      const { token } = (await response.json()) as { readonly token: string };
      return token;
    } catch (error) {
      if (attempt === 100) throw error;
      await Bun.sleep(100);
    }
  }
}

/** Where plants are posted. */
interface Api {
  readonly url: string;
  readonly path: string;
  readonly token: string;
}

function storeOf(server: ReturnType<typeof start>, { url, path, token }: Api, file: string) {
  const { pid } = server.child;
  const request = postBytes(PLANT, token).replace("/plants", path);
  const measure = loadOn([url], [pid]);

  return {
    pid,
    servers: 1,
    load: (options: LoadOptions) => measure({ ...options, request }),

    async post(body: string) {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const response = await fetch(url + path, { method: "POST", headers, body });
      await response.body?.cancel();
      return response.status;
    },

    stored(id: string) {
      using database = new Database(file, { readonly: true, safeIntegers: true });
      const select = `SELECT id, "${TEXT}" AS text FROM plants WHERE id LIKE ?`;
      return database.query<{ id: unknown; text: string }, [string]>(select).get(id);
    },

    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}
