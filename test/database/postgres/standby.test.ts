import { afterEach, describe, expect, test } from "bun:test";

import type { NewToken, TokenStore } from "../../../src/auth/token_store.ts";
import type { Database } from "../../../src/database/database.ts";
import { codeOf } from "../../../src/database/postgres/errors.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { PlantStoreError } from "../../../src/errors.ts";
import type { NewPlant } from "../../../src/plant/plant.ts";
import { fern, moss } from "../../support/plants.ts";
import { skipsCluster, waitingProcess } from "../../support/postgres.ts";
import { openDatabase, openPostgres, withCluster } from "../../support/postgres_database.ts";

const FERN = fern();
const MOSS = moss({ id: 2n });

const TOKEN: NewToken = {
  name: "phone",
  digest: new Uint8Array(32),
  createdAt: new Date("2026-01-01T00:00:00Z"),
  expiresAt: null,
  scopes: [],
};
const INSERT_TOKEN = `INSERT INTO tokens (name, digest, created_at, scopes) VALUES ('phone', '\\x00', now(), '')`;
const revoke = (tokens: TokenStore) => tokens.revoke(TOKEN.name, TOKEN.createdAt);

type ShowsNoPlant = "plants" | "tokens" | "count" | "delete";
type ShowsPlants = Exclude<keyof Database, ShowsNoPlant | typeof Symbol.asyncDispose>;
type Read = (database: Database) => Promise<NewPlant | undefined>;

/** How each member of a database that shows plants shows {@linkcode FERN}. */
const READS: Readonly<Record<ShowsPlants, Read>> = {
  async pages(database) {
    for await (const [plant] of database.pages()) return plant;
    return undefined;
  },
  find: async (database) => (await database.find([FERN.id]))[0],
};

describe.skipIf(skipsCluster())("while the synchronous standby is gone", () => {
  const cluster = withCluster();
  const loseStandby = () => cluster().set("synchronous_standby_names", "nobody");
  const regainStandby = () => cluster().set("synchronous_standby_names", "");
  afterEach(regainStandby);

  // With the extended protocol, PostgreSQL writes CommandComplete before it commits. It is sent
  // with the warning that the wait has ended, and the connection is closed.
  test("a plant is not acknowledged if its server process is ended while the commit waits", async () => {
    await using database = await openDatabase(cluster());
    expect(await database.add([FERN])).toEqual(["added"]);
    await loseStandby();

    const adding = database.add([MOSS]);
    const ended = await waitingProcess(cluster());
    await cluster().run(`SELECT pg_terminate_backend(${ended})`);

    // It is sent again. The row is there, and the comparison waits for the standby to have it.
    expect(await Promise.race([adding, waitingProcess(cluster(), ended)])).toBeNumber();
    expect(await database.run("SELECT id FROM plants WHERE id = 2")).toHaveLength(1);

    await regainStandby();
    expect(await adding).toEqual(["present"]);
  });

  test("whoever waits is told the setting, and not a deadline alone: as an ordinary role", async () => {
    await cluster().run("CREATE ROLE gardener LOGIN");
    await using database = await openDatabase(cluster(), { role: "gardener", isServing: true });
    await using empty = await cluster().newDatabase();
    await empty.run("GRANT ALL ON SCHEMA public TO gardener");
    await loseStandby();

    const message =
      "commits wait for a synchronous standby: synchronous_standby_names is 'nobody', and 0 standbys are connected: connect one of those, or name one that is connected (NO_STANDBY)";
    const url = parsePostgresUrl(empty.url.replace("postgres@", "gardener@"));
    const open = () =>
      openPostgres(url).then(
        () => "opened",
        (error: Error) => error.message,
      );
    const opening = open();

    for (const call of [() => database.add([FERN], 2_000), () => database.plants.probe()]) {
      // The first deadline may come before the answer.
      let error: unknown;
      do error = await call().catch((thrown: unknown) => thrown);
      while (error instanceof PlantStoreError && codeOf(error.cause) === "DEADLINE");

      expect(error).toMatchObject({
        code: "storage_unavailable",
        message: expect.stringContaining("storage did not finish in time"),
        cause: { name: "PostgresFailure", code: "NO_STANDBY", message },
      });
    }

    // On a busy machine, a connection that asks for the reason comes too late.
    let refusal = await opening;
    while (refusal.endsWith("(DEADLINE)")) refusal = await open();
    expect(refusal).toBe(`Cannot open database "${empty.name}": ${message}`);
  });

  test.each(
    Object.entries(READS).flatMap(([name, read]) =>
      ["the owner", "a role that may only read"].map((who) => [name, who, read] as const),
    ),
  )("%s() shows no plant that the standby may not have: as %s", async (_name, who, read) => {
    await using database = await openDatabase(cluster());
    const role = who === "the owner" ? "postgres" : "reader";
    if (role === "reader")
      await database.run(
        "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
      );
    await using reader = await openPostgres(
      parsePostgresUrl(database.url.replace("postgres@", `${role}@`)),
      { access: "read" },
    );
    await loseStandby();

    const adding = database.add([FERN]);
    const ended = await waitingProcess(cluster());
    await cluster().run(`SELECT pg_terminate_backend(${ended})`);
    const again = await waitingProcess(cluster(), ended);

    const shown = read(reader);
    expect(await Promise.race([shown, waitingProcess(cluster(), ended, again)])).toBeNumber();

    await regainStandby();
    expect(await shown).toEqual(FERN);
    expect(await adding).toEqual(["present"]);
  });

  test("a plant is deleted once the standby has deleted it, even if the first attempt was ended", async () => {
    await using database = await openDatabase(cluster());
    await database.add([FERN]);
    await loseStandby();

    const deleting = database.delete([FERN.id]);
    const ended = await waitingProcess(cluster());
    await cluster().run(`SELECT pg_terminate_backend(${ended})`);

    // The row is gone, and the next attempt waits for the standby all the same.
    expect(await Promise.race([deleting, waitingProcess(cluster(), ended)])).toBeNumber();
    expect(await database.run("SELECT id FROM plants")).toEqual([]);

    await regainStandby();
    expect(await deleting).toBeUndefined();
  });

  // `token revoke` that timed out, and was typed again; or whose first attempt lost its connection.
  test.each<[string, string, (tokens: TokenStore) => Promise<unknown>, unknown]>([
    ["added", INSERT_TOKEN, (tokens) => tokens.add(TOKEN), false],
    ["revoked", "UPDATE tokens SET revoked_at = now()", revoke, false],
    ["deleted", "DELETE FROM tokens", (tokens) => tokens.delete(TOKEN.name), false],
    ["pruned", "DELETE FROM tokens", (tokens) => tokens.prune(TOKEN.createdAt), 0],
  ])(
    "nobody is told that a token is %s already before the standby has it",
    async (_done, statement, again, expected) => {
      await using database = await openDatabase(cluster());
      if (statement !== INSERT_TOKEN) await database.tokens.add(TOKEN);
      await loseStandby();

      await using client = database.connect();
      const changing = client.unsafe(statement).catch(() => {});
      const ended = await waitingProcess(cluster());
      await cluster().run(`SELECT pg_terminate_backend(${ended})`);
      await changing;

      const result = again(database.tokens);
      const told = result.then(() => "told");
      expect(await Promise.race([told, waitingProcess(cluster(), ended)])).toBeNumber();

      await regainStandby();
      expect(await result).toBe(expected);
    },
  );
});
