import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { blocks } from "../support/guides.ts";
import { INTACT, type Ledger, makeLedger, printed } from "../support/ledger.ts";
import { fern, moss, TEXT } from "../support/plants.ts";
import {
  INSTALLED,
  positionOf,
  type PostgresCluster,
  runAsServer,
  skipsCluster,
  skipsInstalled,
  startCluster,
  untilReplayed,
} from "../support/postgres.ts";
import { emptyDirectory, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { range } from "../support/scale.ts";
import { startProxy, type TcpProxy } from "../support/tcp_proxy.ts";
import { judge, openService } from "./postgres.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

const FERN = fern({ id: 0n });
const MOSS = moss({ id: -1n });
const PLANTS = range(1, 20).map((id) => fern({ id, [TEXT]: "first" }));

/** The statements of the page about failover, as they stand there. */
const [LET_REPLAY = [], ASK = [], PROMOTE = [], FOLLOW = [], LOOK = []] = blocks(
  "By hand",
  "sql",
).map((block) => block.split(/;\n/).filter((statement) => statement.trim() !== ""));

/** The role of the page's lines, which is no superuser. */
const REPLICATOR = [
  "CREATE ROLE replicator LOGIN REPLICATION",
  ...(/GRANT [^']+/.exec(blocks("Make a standby", "sh").join("")) ?? []),
];

/** A rule that promotes the wrong one. */
const ASK_AT_ONCE =
  "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0' AS received";

type Service = Awaited<ReturnType<typeof openService>>;

/** What sends plants, and what remembers them. */
interface Sender {
  readonly service: Service;
  readonly ledger: Ledger;
}

/** A primary `a`, and two standbys, `c` behind a proxy. */
interface World extends Sender {
  readonly a: PostgresCluster;
  readonly b: PostgresCluster;
  readonly c: PostgresCluster;
  readonly cToPrimary: TcpProxy;
}

/** A primary that was lost, its standbys, and what goes on at them once they have been asked. */
interface Lost {
  readonly candidates: readonly PostgresCluster[];
  readonly proceed?: () => void;
}

/** How {@linkcode PLANTS} get a 200, and then the primary is lost. */
const SITUATIONS = {
  async "a standby lags"({ a, b, c, cToPrimary, ...rest }) {
    cToPrimary.set("black hole");
    await addPlants(rest);
    await a.kill();
    return { candidates: [c, b] };
  },

  async "a standby with a delay was restarted"({ a, b, c, cToPrimary, ...rest }) {
    await b.set("recovery_min_apply_delay", "1h");
    await add(rest, MOSS);
    await untilReplayed(c, await positionOf(a));

    cToPrimary.set("black hole");
    await addPlants(rest);
    await losePower(a, b, c);
    return { candidates: [b, c] };
  },

  async "a standby was restarted and still replays"({ a, b, c, cToPrimary, ...rest }) {
    // The archive is slow to say that it does not have the segment.
    const isHeld = join(b.data, "is-held");
    await b.run("SELECT pg_wal_replay_pause()");
    await a.run("SELECT pg_switch_wal()");
    await add(rest, MOSS);
    const position = await positionOf(a);
    const [row] = await a.run(`SELECT pg_walfile_name('${position}') AS segment`);
    await untilReplayed(c, position);

    cToPrimary.set("black hole");
    await addPlants(rest);
    writeFileSync(isHeld, "");
    const wait = `while test -e "${isHeld}" && test %f = ${row?.["segment"]}; do sleep 0.02; done; false`;
    configure(b, { restore_command: wait });
    await losePower(a, b, c);
    return { candidates: [b, c], proceed: () => rmSync(isHeld) };
  },

  async "a former primary follows nobody"({ a, b, c, ...rest }) {
    await goFurther(a, b, c);
    await a.kill();
    await promote(b, "ANY 1 (c)");
    await follow(c, b, "c");
    await addPlants(rest);

    await start(a, b);
    await b.kill();
    return { candidates: [a, c] };
  },
} satisfies Record<string, (world: World) => Promise<Lost>>;

/** Whom to promote: as the page says, and the controls. */
const RULES = {
  "the page": chooseByPage,
  "the greatest LSN at once": async (candidates) => greatest(await ask(candidates, [ASK_AT_ONCE])),
  "any standby": async ([candidate]) => candidate as PostgresCluster,
} satisfies Record<
  string,
  (candidates: readonly PostgresCluster[], proceed?: () => void) => Promise<PostgresCluster>
>;

describe.skipIf(skipsCluster())("a failover by hand", () => {
  test.each<[keyof typeof SITUATIONS, keyof typeof RULES, lost: number]>([
    ["a standby lags", "the page", 0],
    ["a standby lags", "any standby", 20],
    ["a standby with a delay was restarted", "the page", 0],
    ["a standby with a delay was restarted", "the greatest LSN at once", 20],
    ["a standby was restarted and still replays", "the page", 0],
    ["a standby was restarted and still replays", "the greatest LSN at once", 20],
    ["a former primary follows nobody", "the page", 0],
    ["a former primary follows nobody", "the greatest LSN at once", 20],
  ])(
    "%s: by the rule of %s, %d of 20 acknowledged plants are lost",
    async (situation, rule, lost) => {
      await using world = await makeWorld("ANY 1 (b, c)");
      const { candidates, proceed }: Lost = await SITUATIONS[situation](world);
      const chosen = await RULES[rule](candidates, proceed);

      await promote(chosen, "");
      const { service, ledger } = world;
      const size = `${rule}: ${ledger.acknowledgements()} acknowledged`;
      const verdict = await judge(chosen.url("postgres"), ledger);
      expect(printed(situation, size, verdict)).toEqual({ ...INTACT, lost });

      if (lost > 0) {
        // The ids are free: another plant gets a 200 under each.
        const others = PLANTS.map(({ id }) => fern({ id, [TEXT]: "second" }));
        const outcomes = await service.plants.add(others, { timeoutMs: LONG_TEST_TIMEOUT_MS });
        expect(new Set(outcomes)).toEqual(new Set(["added"]));
      }
    },
  );

  test.each([
    ["FIRST 1 (b)", ""],
    ["ANY 2 (b, c)", "ANY 1 (c)"],
  ])(
    "a new primary with its predecessor's %s stores nothing until the page's step sets '%s'",
    async (names, left) => {
      await using world = await makeWorld(names, { synchronous_standby_names: names });
      const { a, b, c, service } = world;
      await a.kill();
      // The control: without the step that names those that are left.
      await b.run(...PROMOTE.slice(-1));
      await follow(c, b, "c");
      await expect(service.plants.add([MOSS], { timeoutMs: 2_000 })).rejects.toMatchObject({
        code: "storage_unavailable",
      });

      await b.run(...nameStandbys(left));
      await addPlants(world, 60_000);
    },
  );

  test("the third standby has what the new primary acknowledges, once it follows it", async () => {
    await using world = await makeWorld("ANY 1 (b, c)");
    const { a, b, c, service, ledger } = world;
    await a.kill();
    await promote(b, "ANY 1 (c)");
    await expect(service.plants.add([MOSS], { timeoutMs: 2_000 })).rejects.toMatchObject({
      code: "storage_unavailable",
    });

    await follow(c, b, "c");
    await addPlants(world, 60_000);
    expect(await b.run(...LOOK)).toEqual([{ application_name: "c", sync_state: "quorum" }]);

    await b.kill();
    await promote(await chooseByPage([c]), "");
    ledger.attempt(MOSS);
    expect(printed("the third standby", "20", await judge(c.url("postgres"), ledger))).toEqual(
      INTACT,
    );
  });

  test.each([
    ["ANY 1 (nobody)", 0],
    ["ANY 1 (a)", 20],
  ])(
    "beside a former primary that was not rewound, with %s, %d plants are lost",
    async (names, acknowledged) => {
      await using world = await makeWorld("ANY 1 (b, c)");
      const { a, b, c, ledger } = world;
      await goFurther(a, b, c);
      await Promise.all([a, c].map(({ kill }) => kill()));
      await promote(b, names);
      await start(a, b);

      const adding = addPlants(world, acknowledged > 0 ? LONG_TEST_TIMEOUT_MS : 1_000);
      if (acknowledged === 0)
        await expect(adding).rejects.toMatchObject({ code: "storage_unavailable" });
      else await adding;
      await b.kill();
      await promote(a, "");
      const size = `${names}: ${acknowledged + 1} acknowledged`;
      const verdict = await judge(a.url("postgres"), ledger);
      expect(printed("a former primary", size, verdict)).toEqual({ ...INTACT, lost: acknowledged });
    },
  );

  test.each([
    ["it is stopped", 0],
    ["its pg_hba.conf refuses everybody, and is reloaded", 20],
  ])("a fenced primary, if %s, acknowledges %d plants that are lost", async (fence, lost) => {
    await using world = await makeWorld("ANY 1 (b, c)");
    const { a, b, c, ledger } = world;
    if (lost === 0) {
      await a.kill();
    } else {
      writeFileSync(join(a.data, "pg_hba.conf"), "local all all reject\n");
      await a.run("SELECT pg_reload_conf()");
    }

    await promote(b, "ANY 1 (c)");
    if (lost === 0) await follow(c, b, "c");
    await addPlants(world);
    const acknowledged = ledger.acknowledgements();
    const size = `${fence}: ${acknowledged} acknowledged`;
    await b.run(...nameStandbys(""));
    const verdict = await judge(b.url("postgres"), ledger);
    expect(printed("a fence", size, verdict)).toEqual({ ...INTACT, lost });
  });
});

describe.skipIf(skipsInstalled())("after a failover by hand", () => {
  test("the old primary follows the new one by the page's lines, and not without them", async () => {
    await using world = await makeWorld("ANY 1 (b, c)", { wal_log_hints: "on" }, INSTALLED);
    const { a, b, c, ledger } = world;
    // It alone has what it cannot commit.
    await Promise.all([b, c].map(({ kill }) => kill()));
    await expect(addPlants(world, 1_000)).rejects.toMatchObject({ code: "storage_unavailable" });
    await a.kill();
    await Promise.all([b, c].map(({ restart }) => restart()));
    await promote(b, "ANY 1 (c)");
    await follow(c, b, "c");
    await b.run(...REPLICATOR);
    await add(world, MOSS);

    await start(a, b);
    expect(await timelineOf(a)).toBeLessThan(await timelineOf(b));
    await a.kill();
    rmSync(join(a.data, "standby.signal"));

    makeAgain(a, b);
    await a.restart();
    while ((await timelineOf(a)) < (await timelineOf(b))) await Bun.sleep(10);
    while ((await b.run(...LOOK)).length < 2) await Bun.sleep(10);
    const position = await positionOf(b);
    await untilReplayed(a, position);
    await b.run(...nameStandbys("ANY 1 (a)"));
    expect(printed("the old primary", "22", await judge(b.url("postgres"), ledger))).toEqual(
      INTACT,
    );
  });
});

describe.skipIf(skipsInstalled())("pg_rewind of an old primary", () => {
  test.each([
    ["0", /could not find previous WAL record/],
    ["1GB", undefined],
  ])("after its checkpoints, with wal_keep_size = %s", async (wal_keep_size, failure) => {
    const settings = { wal_log_hints: "on", min_wal_size: "32MB", wal_keep_size };
    await using a = await startCluster({ programs: INSTALLED, settings });
    await using b = await startCluster({ programs: INSTALLED, primary: a, name: "b" });
    await b.run("SELECT pg_promote()");
    await b.run(...REPLICATOR);
    await a.run("SELECT pg_logical_emit_message(true, 'a', 'x')");
    for (let segment = 0; segment < 4; segment++)
      await a.run("SELECT pg_switch_wal()", "CHECKPOINT", "SELECT txid_current()");
    await a.kill();

    const rewind = () => {
      makeAgain(a, b);
    };
    if (failure === undefined) expect(rewind).not.toThrow();
    else expect(rewind).toThrow(failure);
  });
});

describe.skipIf(skipsInstalled())("a failover beside an archiver", () => {
  test.each([
    ["FIRST 1 (b)", 0],
    ["*", 20],
  ])("with '%s', %d plants are lost that only the archiver has", async (names, acknowledged) => {
    await using world = await makeWorld("", {}, INSTALLED);
    const { a, b, ledger } = world;
    await using _ = await startArchiver(a, INSTALLED ?? "");
    await a.set("synchronous_standby_names", names);
    await b.kill();
    await world.c.kill();

    const adding = addPlants(world, acknowledged > 0 ? LONG_TEST_TIMEOUT_MS : 1_000);
    if (acknowledged === 0)
      await expect(adding).rejects.toMatchObject({ code: "storage_unavailable" });
    else await adding;

    await a.kill();
    await b.restart();
    await promote(b, "");
    const size = `${names}: ${acknowledged + 1} acknowledged`;
    const verdict = await judge(b.url("postgres"), ledger);
    expect(printed("an archiver", size, verdict)).toEqual({ ...INTACT, lost: acknowledged });
  });
});

/** Makes a former primary a standby of the new one by the page's lines. */
function makeAgain(former: PostgresCluster, { port }: PostgresCluster): void {
  const lines = blocks("The old primary", "sh")
    .join("")
    .replaceAll(/sudo -u postgres |\/usr\/lib\/\S+\/|--config-file \S+|^PGDATA=.*/gm, "")
    .replaceAll("/var/lib/postgresql/15/main", former.data)
    .replaceAll("host=b.example.org", `host=127.0.0.1 port=${port}`);
  // The test starts it.
  runAsServer(`systemctl() { :; }\n${lines}`, {
    PGDATA: former.data,
    PGHOST: "127.0.0.1",
    PGPORT: String(port),
    PGUSER: "postgres",
  });
}

/** Starts them. Both standbys have the tables and the first plant. */
async function makeWorld(
  names: string,
  settings: Readonly<Record<string, string>> = {},
  programs?: string,
) {
  await using stack = new AsyncDisposableStack();
  const { wal_log_hints = "off" } = settings;
  const a = stack.use(await startCluster({ programs, settings: { wal_log_hints } }));
  const cToPrimary = stack.use(startProxy(a.port));
  const b = stack.use(await startCluster({ programs, settings, primary: a, name: "b" }));
  const c = stack.use(await startCluster({ programs, settings, primary: cToPrimary, name: "c" }));
  await a.set("synchronous_standby_names", names);

  const hosts = [a, b, c].map(({ port }) => `127.0.0.1:${port}`);
  const url = `postgres://postgres@${hosts.join()}/postgres`;
  const service = stack.use(await openService(url));
  const world = { a, b, c, cToPrimary, service, ledger: makeLedger() };
  await add(world, FERN);
  const position = await positionOf(a);
  await Promise.all([b, c].map((standby) => untilReplayed(standby, position)));

  const opened = stack.move();
  return { ...world, [Symbol.asyncDispose]: () => opened.disposeAsync() };
}

async function add({ service, ledger }: Sender, plant: typeof FERN): Promise<void> {
  ledger.attempt(plant);
  expect(await service.add(plant)).toBe("added");
  ledger.acknowledge(plant);
}

/** Adds {@linkcode PLANTS} as one batch. */
async function addPlants(
  { service, ledger }: Sender,
  timeoutMs = LONG_TEST_TIMEOUT_MS,
): Promise<void> {
  PLANTS.forEach(ledger.attempt);
  const outcomes = await service.plants.add(PLANTS, { timeoutMs });
  expect(new Set(outcomes)).toEqual(new Set(["added"]));
  PLANTS.forEach(ledger.acknowledge);
}

/** The power of all of them fails, and the primary does not come back. */
async function losePower(primary: PostgresCluster, ...standbys: PostgresCluster[]): Promise<void> {
  await Promise.all([primary, ...standbys].map(({ kill }) => kill()));
  await Promise.all(standbys.map(({ restart }) => restart()));
}

/** A primary is cut off from its standbys, and goes further than they do. */
async function goFurther(primary: PostgresCluster, ...standbys: PostgresCluster[]): Promise<void> {
  const nobody = ["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"];
  await Promise.all(standbys.map(({ run }) => run(...nobody)));
  while ((await primary.run("SELECT FROM pg_stat_replication")).length > 0) await Bun.sleep(5);
  await primary.run(
    "SET synchronous_commit = local",
    "SELECT pg_logical_emit_message(true, 'a', repeat('x', 1000000))",
  );
}

/** A former primary starts as a standby of the new one. */
async function start(former: PostgresCluster, primary: PostgresCluster): Promise<void> {
  configure(former, { primary_conninfo: conninfo(primary, "a"), synchronous_standby_names: "" });
  writeFileSync(join(former.data, "standby.signal"), "");
  await former.restart();
}

/** Settings from the next start on. */
function configure({ data }: PostgresCluster, settings: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(settings))
    appendFileSync(join(data, "postgresql.auto.conf"), `${name} = '${value}'\n`);
}

function conninfo({ port }: PostgresCluster, name: string): string {
  return `host=127.0.0.1 port=${port} user=postgres application_name=${name}`;
}

/** The page's statements that say for whom a new primary waits. */
function nameStandbys(names: string): string[] {
  return PROMOTE.slice(0, -1).map((statement) => statement.replace(/'.*'/, `'${names}'`));
}

async function promote({ run }: PostgresCluster, names: string): Promise<void> {
  await run(...nameStandbys(names), ...PROMOTE.slice(-1));
}

async function follow(
  { run }: PostgresCluster,
  primary: PostgresCluster,
  name: string,
): Promise<void> {
  await run(
    ...FOLLOW.map((statement) => statement.replace(/'.*'/, `'${conninfo(primary, name)}'`)),
  );
}

/** What a candidate says of itself. */
interface Position {
  readonly candidate: PostgresCluster;
  readonly timeline: string;
  readonly received: bigint;
  readonly hasReplayed: boolean;
}

/** The steps of the page up to the choice. */
async function chooseByPage(candidates: readonly PostgresCluster[], proceed = () => {}) {
  for (const { run } of candidates) await run(...LET_REPLAY);

  let before: readonly bigint[] = [];
  for (let asked = 1; ; asked++) {
    const positions = await ask(candidates, ASK);
    const now = positions.map(({ received }) => received);
    if (positions.every(({ hasReplayed }) => hasReplayed) && Bun.deepEquals(now, before))
      return greatest(positions);

    // Positions that stand still are not enough.
    if (asked === 3) proceed();
    before = now;
    await Bun.sleep(20);
  }
}

async function timelineOf(server: PostgresCluster): Promise<number> {
  const [row] = await server.run(...ASK);
  return Number.parseInt(String(row?.["timeline"]), 16);
}

async function ask(
  candidates: readonly PostgresCluster[],
  question: readonly string[],
): Promise<Position[]> {
  return await Promise.all(
    candidates.map(async (candidate) => {
      const [row] = await candidate.run(...question);
      return {
        candidate,
        timeline: String(row?.["timeline"]),
        received: BigInt(String(row?.["received"])),
        hasReplayed: row?.["has_replayed"] === true,
      };
    }),
  );
}

/** The timeline decides first. */
function greatest(positions: readonly Position[]): PostgresCluster {
  const [first] = positions.toSorted(
    (one, other) =>
      other.timeline.localeCompare(one.timeline) || Number(other.received - one.received),
  );
  if (first === undefined) throw new Error("There is no candidate");
  return first.candidate;
}

/** PostgreSQL's own archiver, which confirms what it has written. */
async function startArchiver(primary: PostgresCluster, programs: string) {
  const directory = emptyDirectory();
  const at = ["--host", "127.0.0.1", "--port", String(primary.port), "--username", "postgres"];
  const archiver = Bun.spawn(
    [join(programs, "bin/pg_receivewal"), "--synchronous", "--directory", directory.path, ...at],
    { stdout: "ignore", stderr: "ignore" },
  );
  const isThere = "SELECT FROM pg_stat_replication WHERE application_name = 'pg_receivewal'";
  while ((await primary.run(isThere)).length === 0) await Bun.sleep(10);

  return {
    async [Symbol.asyncDispose]() {
      archiver.kill();
      await archiver.exited;
      directory[Symbol.dispose]();
    },
  };
}
