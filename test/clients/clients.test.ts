import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";

import { fetchWithRetries, int64 } from "../../src/http/client.ts";
import { INT64_MAX, type NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import { table } from "../support/guides.ts";
import { fern, ivy, jsonOf, moss, OPTIONAL_TEXT, returned, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  runToEnd,
  type StartOptions,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { startProxy } from "../support/tcp_proxy.ts";
import { createPlant as createPlantByEden } from "./eden_client.ts";
import type { Connection, CreatePlant, Outcome, Plant } from "./generated_client.ts";
import {
  generateClients,
  load,
  pythonClient,
  skipsClients,
  skipsPython,
  typeCheck,
} from "./generators.ts";

setDefaultTimeout(4 * TEST_TIMEOUT_MS);

/** The clients in TypeScript: how the README names them, and the program here that uses one. */
const TYPESCRIPT = [
  { client: "openapi-typescript", program: "openapi_fetch" },
  { client: "@hey-api/openapi-ts", program: "hey_api" },
  { client: "orval", program: "orval" },
];
/** Its types are those of the app, and of no document. */
const EDEN = { client: "Eden", program: "eden" };
const PYTHON = { client: "OpenAPI Generator (Python)", program: "python" };

const skipped = skipsClients();
const python = !skipped && !skipsPython();
const GENERATED = [...TYPESCRIPT, ...(python ? [PYTHON] : [])];
const CLIENTS = [...GENERATED, EDEN];

describe.skipIf(skipped)("a client generated from the document", () => {
  const stack = new DisposableStack();
  let clients = "";
  beforeAll(async () => {
    clients = stack.use(await generateClients({ python })).path;
  });
  afterAll(() => stack.dispose());

  const clientOf = async (program: string): Promise<CreatePlant> => {
    if (program === "eden") return createPlantByEden;
    return program === "python"
      ? pythonClient(clients)
      : await load(clients, program, "createPlant");
  };

  /** A server of the executable, with how to reach it, and what it stores. */
  async function startPlants(options: StartOptions = {}) {
    const server = await startServer({ ...options, env: { AUTH_TOKENS: TOKEN, ...options.env } });
    const connection: Connection = { baseUrl: server.url, token: TOKEN, fetch };
    const stored = async () => {
      const { stdout } = await runToEnd({ args: ["export"], cwd: server.cwd });
      return stdout.trim().split("\n");
    };
    return { ...server, connection, stored };
  }

  test("in TypeScript passes `strict`, with a type for every response, and so does the README's code", async () => {
    expect(await typeCheck(clients)).toBe("");
  });

  test.each(GENERATED)("stores plants, and reads every error: $client", async ({ program }) => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    const metrics = await runToEnd({
      args: ["token", "create", "prometheus", "--scope", "metrics"],
      cwd,
    });
    await using plants = await startPlants({ cwd });
    const { connection } = plants;
    const createPlant = await clientOf(program);
    const leaf = fern({ id: 2, [TEXT]: "🌿", [OPTIONAL_TEXT]: "indoor" });
    const latin1 = { "Content-Type": "application/json; charset=iso-8859-1" };

    const outcomes = [
      await createPlant(sent(fern()), connection),
      await createPlant(sent(leaf), connection),
      await createPlant(sent(fern({ [TEXT]: "\0" })), connection).catch(({ message }) => message),
      await createPlant(sent(fern()), { ...connection, token: "unknown-token-0123456789" }),
      await createPlant(sent(fern()), { ...connection, token: metrics.stdout.trim() }),
      await createPlant(sent(ivy()), connection),
      await createPlant(sent(fern({ [TEXT]: "x".repeat(65_536) })), connection),
      await createPlant(sent(fern()), { ...connection, headers: latin1 }),
    ];

    expect(outcomes.map(withoutNone)).toEqual([
      { status: 200, ...returned(fern()) },
      { status: 200, ...returned(leaf) },
      // Python's client obeys the pattern of the document itself.
      program === "python"
        ? expect.stringContaining(`Invalid value for \`${TEXT}\``)
        : {
            status: 400,
            error: 4002,
            message: `\`${TEXT}\` must not contain U+0000 or a lone surrogate`,
          },
      { status: 401, error: 4012, message: "the bearer token is not valid" },
      { status: 403, error: 4031, message: 'the token does not have the required scope "write"' },
      {
        status: 409,
        error: 4091,
        message: "`id` is taken by a different plant; choose another id",
      },
      { status: 413, error: 4131, message: "the body must have at most 65536 bytes" },
      {
        status: 415,
        error: 4151,
        message: "the Content-Type must be application/json in UTF-8",
      },
    ]);

    expect(await plants.stored()).toEqual([jsonOf(fern()), jsonOf(leaf)]);

    await plants.stop();
    await using impatient = await startPlants({ cwd, env: { REQUEST_TIMEOUT_MS: "300" } });
    using locked = new Database(join(cwd, "plants.db"));
    locked.run("BEGIN IMMEDIATE");
    const refused = await createPlant(sent(moss({ id: 3 })), impatient.connection);
    locked.run("ROLLBACK");

    // The lock's own limit and that of the request end at the same time: either may be the reason
    // that is given.
    expect(refused).toEqual({
      status: 503,
      error: 5032,
      message: expect.stringMatching(
        /^storage (?:is locked by another process|did not finish in time); /,
      ),
    });
  });

  test("of the README's example stores the largest id", async () => {
    await using plants = await startPlants();
    const storeFern: (baseUrl: string, token: string) => Promise<object> = await load(
      clients,
      "store_fern",
      "storeFern",
    );
    expect(await storeFern(plants.url, TOKEN)).toEqual(returned(fern()));
    expect(await plants.stored()).toEqual([expect.stringMatching(/^\{"id":9223372036854775807,/)]);
    await expect(storeFern(plants.url, `${TOKEN}-not`)).rejects.toThrow(
      "4012: the bearer token is not valid",
    );
  });

  test.each(CLIENTS)(
    "does with ids past 2^53 what the README says: $client",
    async ({ client, program }) => {
      await using plants = await startPlants();
      const createPlant = await clientOf(program);

      const send = async (text: string, id: bigint, as: (id: bigint) => unknown) => {
        const plant = fern({ id, [TEXT]: text });
        const body = { ...plant, id: as(id) as number };
        const outcome = await createPlant(body, plants.connection).catch((error) => error);
        if (outcome instanceof Error) return outcome.name;
        if (outcome.status !== 200) return `${outcome.status}`;
        const lines = await plants.stored();
        return lines.includes(jsonOf(plant)) ? "exact" : "200, but another id";
      };

      // A Python int has any size, and its program gets the digits.
      const asNumber = program === "python" ? int64 : Number;
      const cells = [
        await send("1", 2n ** 53n + 1n, asNumber),
        await send("2", 2n ** 63n - 1n, asNumber),
        program === "python" ? "" : await send("3", 2n ** 63n - 1n, (id) => id),
        program === "python" ? "" : await send("4", 2n ** 63n - 1n, int64),
      ];
      expect(cells).toEqual(documentedCells(client));
    },
  );

  test("axios sends the largest id as a bigint, and not with int64(), as the README says", async () => {
    await using plants = await startPlants();
    const program = [process.execPath, join(clients, "programs/axios.ts")];
    const { stdout } = await runToEnd({ program, args: [plants.url, TOKEN], cwd: clients });
    expect(stdout).toBe("[400,200]\n");
    expect(await plants.stored()).toEqual([jsonOf(fern({ id: INT64_MAX }))]);
  });

  test.each([...TYPESCRIPT, EDEN])(
    "stores a plant once when a response is lost, with fetchWithRetries(): $client",
    async ({ program }) => {
      await using plants = await startPlants();
      using proxy = startProxy(Number(new URL(plants.url).port));
      const createPlant = await clientOf(program);

      proxy.set("lose one reply");
      const connection = {
        ...plants.connection,
        baseUrl: `http://127.0.0.1:${proxy.port}`,
        fetch: fetchWithRetries,
      };
      const outcome = await createPlant(sent(fern()), connection);
      expect(withoutNone(outcome)).toEqual({ status: 200, ...returned(fern()) });
      expect(proxy.lost()).toBe(1);
      expect(await plants.stored()).toEqual([jsonOf(fern())]);
    },
  );
});

/** A plant as the generated types have it. */
function sent({ id, ...fields }: NewPlant): Plant {
  return { id: Number(id), ...fields };
}

/** What a program makes of a member that is absent is its own matter: Python has None. */
function withoutNone(outcome: Outcome | string): object | string {
  if (typeof outcome === "string") return outcome;
  return Object.fromEntries(
    Object.entries(outcome).filter(([, value]) => value !== undefined && value !== null),
  );
}

/** What the README's table says a client does, without what it adds after a comma. */
function documentedCells(client: string): string[] {
  const [, ...cells] =
    table("Ids past 2^53 in JavaScript").find(([name = ""]) => name.split(", ").includes(client)) ??
    [];
  return cells.map((cell) => cell.replace(/^(4\d\d),.*/, "$1"));
}
