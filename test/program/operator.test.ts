import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import {
  appendFileSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";

import { INT64_MAX } from "../../src/plant/plant.ts";
import { testApp } from "../support/app.ts";
import { startBrokenGateway } from "../support/broken_gateway.ts";
import { bearer, post, TOKEN, untilTokenIs } from "../support/client.ts";
import { CERTIFICATE, EVERY_METRIC } from "../support/dashboard.ts";
import { executable } from "../support/executable.ts";
import { blocks, guides, section } from "../support/guides.ts";
import { skipsWithout } from "../support/missing.ts";
import { PRELUDE } from "../support/other_process.ts";
import { fern, ivy, jsonOf, membersOf, returned, TEXT } from "../support/plants.ts";
import {
  emptyDirectory,
  exitCodeOf,
  freePort,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  runToEnd,
  start,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { startStrangers, STRANGERS, WHOLE } from "../support/strangers.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const UNITS = join(ROOT, "src/server/systemd");
const ALERTS = Bun.file(join(ROOT, "src/telemetry/alerts.yaml"));

/** For lines of root: `systemctl` says what it was called with. */
const STUBS = 'systemctl() { echo "$*"; }\n';

/** Where the shell finds the program, as once it is installed. */
const PATH = `${dirname(executable()[0])}:${process.env["PATH"]}`;

test.concurrent("the operator's chapters, followed in order", async () => {
  using home = emptyDirectory();
  const env = { PATH, PORT: "0" };
  const follow = (script = "") => runToEnd({ program: ["sh", "-ec", script], cwd: home.path, env });
  const serve = () => startServer({ program: ["plant-store"], cwd: home.path, env });

  let token: string;
  // The chapters name the paths of a server; here all is in one directory of one user, and there is
  // no systemd.
  const [backup, restore] = ["Backup", "Restore"].map((heading) => {
    const [code = ""] = blocks(heading, "sh");
    return code
      .replace(/\/var\/backups\/\S+/, "copy.db")
      .replaceAll(/^systemctl.*\n|\/var\/lib\/plant-store\//gm, "");
  });

  {
    await using server = await serve();
    const [first] = await server.stderr.until(/plant_\w{38}/);
    token = first;
    expect(await postNumbered(server.url, token, 1)).toBe(200);

    const [tokens = ""] = blocks("Tokens", "sh");
    const stdout = expect.stringMatching(/^plant_[0-9A-Za-z]{38}\n.*\bgreenhouse\b/s);
    expect(await follow(tokens)).toMatchObject({ exitCode: 0, stdout });

    const [reading = ""] = blocks("Export and import", "sh");
    expect(await follow(backup)).toMatchObject({ exitCode: 0 });
    expect(await follow(reading)).toMatchObject({
      exitCode: 0,
      stderr: "0 added, 1 already there, 0 refused\n".repeat(2),
    });
    expect(await postNumbered(server.url, token, 2)).toBe(200);
    expect(await server.stop()).toBe(0);
  }

  expect(await follow(restore)).toMatchObject({ exitCode: 0 });

  await using server = await serve();
  expect((await follow("plant-store export")).stdout).toBe(numbered(1));
  expect(await postNumbered(server.url, token, 2)).toBe(200);
});

test("the lines of the operator's questions rotate a token, and look up, delete and restore a plant", async () => {
  using home = emptyDirectory();
  const env = { PATH, PORT: "0", DATABASE_URL: "file:plants.db" };
  const follow = async (script: string) => {
    const ended = await runToEnd({ program: ["sh", "-ec", script], cwd: home.path, env });
    expect(ended).toMatchObject({ exitCode: 0 });
    return ended.stdout;
  };
  const here = (lines: string) =>
    lines.replaceAll("/var/lib/plant-store/", "").replace(/\/var\/backups\/.*/, "copy.db");
  const linesOf = (heading: string) => here(blocks(heading, "sh").join(""));

  const old = (await follow("plant-store token create greenhouse")).trim();
  await using server = await startServer({ program: ["plant-store"], cwd: home.path, env });
  expect(await postNumbered(server.url, old, 7)).toBe(200);

  const [create = "", list = "", revoke = ""] = blocks("Rotate a token", "sh");
  const [created = ""] = (await follow(here(create))).split("\n");
  while ((await postNumbered(server.url, created, 8)) === 401) await Bun.sleep(50);
  await follow(here(list));
  expect(await postNumbered(server.url, old, 8)).toBe(200);
  await follow(here(revoke));
  while ((await postNumbered(server.url, old, 8)) === 200) await Bun.sleep(50);
  expect(await postNumbered(server.url, created, 8)).toBe(200);
  expect(await postNumbered(server.url, old, 8)).toBe(401);

  expect(await follow(linesOf("Look up a plant"))).toBe(`${numbered(7)}${numbered(8)}2\n`);

  await follow("plant-store backup copy.db");
  await follow(linesOf("Delete a plant"));
  expect(await follow("plant-store export")).toBe(numbered(8));
  await follow(linesOf("Restore one plant"));
  expect(await follow("plant-store export")).toStartWith(numbered(7));
  expect(await postNumbered(server.url, created, 9)).toBe(200);
});

test.skipIf(skipsWithout("tar", "tar"))(
  "the lines of a move bring settings, plants and tokens to another machine, whatever the old one lacks",
  async () => {
    using home = emptyDirectory();
    const files = [
      "usr/local/bin/plant-store",
      "etc/plant-store/plant-store.env",
      "etc/systemd/system/plant-store.service.d/log.conf",
      "etc/litestream.yml",
    ];
    for (const name of files) await Bun.write(home.at(`old/${name}`), name);
    for (const machine of ["old", "new"]) {
      for (const directory of ["root", "var/lib/plant-store"])
        mkdirSync(home.at(`${machine}/${directory}`), { recursive: true, mode: 0o700 });
    }

    const on = (machine: string) => ({
      cwd: home.at(machine),
      env: { PATH, PORT: "0", DATABASE_URL: "file:var/lib/plant-store/plants.db" },
    });
    const follow = (machine: string, script = "") => {
      const copy = `scp() { cp "$1" "${home.at("new")}/\${2#*:}"; }; curl() { :; }\n`;
      // The root of each machine is its directory: tar leaves out the first slash, too.
      const here = script
        .replace(/^tar -C \/ /, "tar -C . ")
        .replaceAll(/(?<=[\s(:])\/(?=[a-z])/g, "");
      // As they are pasted: no line ends the shell.
      return runToEnd({ ...on(machine), program: ["sh", "-c", STUBS + copy + here] });
    };

    const token = (await follow("old", "plant-store token create greenhouse")).stdout.trim();
    {
      await using server = await startServer({ program: ["plant-store"], ...on("old") });
      await untilTokenIs(200, server.url, token);
    }

    const [archive = ""] = blocks("What else to back up", "sh");
    const [unpack = "", leave, arrive] = blocks("Move to another machine", "sh");
    await follow("old", archive.replace("backups.example.org:", "new:root"));
    expect(await follow("new", unpack)).toMatchObject({ exitCode: 0, stdout: "daemon-reload\n" });
    for (const name of files) expect(await Bun.file(home.at(`new/${name}`)).text()).toBe(name);

    expect((await follow("new", arrive)).stdout).not.toContain("enable");
    expect(await follow("old", leave)).toMatchObject({
      exitCode: 0,
      stdout: "disable --now plant-store\ndisable --now plant-store-backup.timer litestream\n",
    });
    expect((await follow("new", arrive)).stdout).toContain(
      "enable --now plant-store-backup.timer plant-store\n",
    );

    await using server = await startServer({ program: ["plant-store"], ...on("new") });
    await untilTokenIs(200, server.url, token, jsonOf(ivy({ id: 2n })));
    expect((await post(server.url, ivy(), { token })).status).toBe(409);
    // A second run replaces nothing while the new server runs.
    expect((await follow("new", arrive)).stdout).not.toContain("enable");
    expect((await follow("new", "plant-store export")).stdout).toBe(
      `${jsonOf(fern())}\n${jsonOf(ivy({ id: 2n }))}\n`,
    );
  },
);

test.concurrent(
  "the lines of an upgrade replace a running executable, and those of a rollback bring it back",
  async () => {
    using home = emptyDirectory();
    for (const directory of ["bin", "backups"]) mkdirSync(home.at(directory));
    copyFileSync(executable()[0], home.at("bin/plant-store"));
    const program = home.at("bin/plant-store");
    const env = { DATABASE_URL: `file:${home.at("plants.db")}`, PORT: "0" };
    await using server = await startServer({ program: [program], cwd: home.path, env });

    const follow = async (script = "") => {
      const here = script
        .replaceAll("/usr/local/bin", home.at("bin"))
        .replaceAll("/etc/plant-store", home.path)
        .replaceAll("/var/backups/plant-store", home.at("backups"));
      return runToEnd({
        // As they are pasted: no line ends the shell.
        program: ["sh", "-c", `${STUBS}${here}`],
        cwd: home.path,
        env: { ...env, PATH: `${home.at("bin")}:${process.env["PATH"]}` },
      });
    };
    writeFileSync(home.at("plant-store.env"), "");
    const isNewer = () => statSync(program).size > statSync(executable()[0]).size;
    const [upgrade, rollback] = blocks("Upgrade and rollback", "sh");

    // A version that cannot start there.
    writeFileSync(home.at("plant-store"), "#!/bin/sh\nexit 1", { mode: 0o755 });
    expect((await follow(upgrade)).stdout).not.toContain("restart");
    expect(isNewer()).toBe(false);

    copyFileSync(executable()[0], home.at("plant-store"));
    appendFileSync(home.at("plant-store"), "newer");
    expect((await follow(upgrade)).stdout).toEndWith("restart plant-store\n");
    expect(isNewer()).toBe(true);
    expect(readdirSync(home.at("backups"))).not.toEqual([]);
    expect(await follow(rollback)).toMatchObject({ exitCode: 0, stdout: "restart plant-store\n" });
    expect(isNewer()).toBe(false);
    expect(await server.stop()).toBe(0);
  },
);

/** What somebody does to the files of a running server, and the command that its log then names. */
const LOSSES: [string, "import" | "restore", (database: string) => void][] = [
  ["the database was removed", "restore", (database) => rmSync(database)],
  ["the database, its WAL and its index were removed", "restore", removeAll],
  [
    "the directory was removed",
    "restore",
    (database) => rmSync(dirname(database), { recursive: true }),
  ],
  ["a backup was moved over the database", "import", putBackup],
  [
    "a backup was put in the place of all files",
    "import",
    (database) => {
      removeAll(database);
      putBackup(database);
    },
  ],
  [
    "the WAL and its index were removed",
    "import",
    (database) => ["-wal", "-shm"].forEach((suffix) => rmSync(database + suffix)),
  ],
  [
    "the WAL was replaced by a copy",
    "import",
    (database) => {
      copyFileSync(`${database}-wal`, `${database}-copy`);
      renameSync(`${database}-copy`, `${database}-wal`);
    },
  ],
  // Another process would have a WAL and an index beside the target.
  [
    "the database was moved, with a link in its place",
    "import",
    (database) => {
      mkdirSync(`${database}-moved`);
      renameSync(database, `${database}-moved/plants.db`);
      symlinkSync(`${database}-moved/plants.db`, database);
    },
  ],
];

function removeAll(database: string): void {
  for (const suffix of ["", "-wal", "-shm"]) rmSync(database + suffix);
}

function putBackup(database: string): void {
  renameSync(`${database}-backup`, database);
}

describe.each([
  ["is stopped", false, LOSSES],
  // All files removed, the database replaced, and the WAL removed.
  ["meets a plant", true, LOSSES.filter((_, index) => index % 2 === 1)],
] as const)("a server that %s", (_, meetsPlant, losses) => {
  test.each(losses)(
    "after %s saves every plant and token, for the command that it names",
    async (_, command, lose) => {
      using home = emptyDirectory();
      const database = home.at("data/plants.db");
      const env = { PORT: "0", DATABASE_URL: `file:${database}`, NODE_ENV: "production" };
      const run = (args: string[]) => runToEnd({ args, cwd: home.path, env });
      const serve = () => startServer({ cwd: home.path, env });
      const add = (from: number) => {
        const plants = Array.from({ length: 2_000 }, (_, index) => numbered(from + 7 * index));
        writeFileSync(home.at("plants.ndjson"), plants.join(""));
        return run(["import", "plants.ndjson"]);
      };
      await run(["migrate"]);
      await add(1);
      await run(["backup", `${database}-backup`]);
      const token = (await run(["token", "create", "greenhouse"])).stdout.trim();

      let log: string;
      {
        await using server = await serve();
        expect(await add(2)).toMatchObject({ exitCode: 0 });
        expect(await postNumbered(server.url, token, 7)).toBe(200);
        lose(database);
        if (meetsPlant) expect(await postNumbered(server.url, token, 10)).toBe(503);
        const endsItself = meetsPlant && command === "import";
        expect(await (endsItself ? exitCodeOf(server.child) : server.stop())).toBe(1);
        log = (await server.stderr.end).replaceAll(String.raw`\"`, '"');
      }

      const saved = readdirSync(home.at("data")).filter((name) => name.includes("saved"));
      expect(saved).toEqual([expect.stringMatching(/^plants\.db-saved-[-\dT.]+Z$/)]);
      const file = home.at(`data/${saved}`);
      expect(statSync(file).mode & 0o777).toBe(0o600);

      const args = command === "restore" ? [command, file] : [command, file, "--tokens"];
      expect(log).toContain(`saved in "${file}": to `);
      expect(log).toContain(`plant-store ${args.join(" ")} --database ${database}`);
      // Nor has the old WAL got into the file that is there now.
      if (command === "import") expect(await run(["check"])).toMatchObject({ exitCode: 0 });
      expect(await run(args)).toMatchObject({ exitCode: 0 });

      await using server = await serve();
      const { stdout } = await run(["plant", "count"]);
      expect(stdout).toBe("4001\n");
      expect(await postNumbered(server.url, token, 14)).toBe(200);
    },
  );
});

/** Keeps a database open. */
const HOLD = `${PRELUDE} globalThis.held = connect(path); console.log("open"); setInterval(() => {}, 1_000);`;

test.each([
  ["is stopped", false, false],
  ["meets a plant", true, false],
  ["is stopped beside another process", false, true],
])(
  "a server whose WAL alone was removed, and which %s, loses nothing",
  async (_, meetsPlant, isBeside) => {
    using home = emptyDirectory();
    const database = home.at("plants.db");
    const options = { cwd: home.path, env: { PORT: "0", AUTH_TOKENS: TOKEN } };
    const saved = () => readdirSync(home.path).filter((name) => name.includes("saved"));
    const count = async () =>
      (await runToEnd({ cwd: home.path, args: ["plant", "count"] })).stdout.trim();

    await runToEnd({ cwd: home.path, args: ["migrate"] });

    {
      await using server = await startServer(options);
      expect(await postNumbered(server.url, TOKEN, 1)).toBe(200);
      const script = isBeside ? HOLD : "console.log()";
      await using other = Bun.spawn([process.execPath, "-e", script, database]);
      await other.stdout.getReader().read();

      rmSync(`${database}-wal`);
      if (meetsPlant) expect(await postNumbered(server.url, TOKEN, 2)).toBe(503);
      expect(await (meetsPlant ? exitCodeOf(server.child) : server.stop())).toBe(1);
      expect(await server.stderr.end).toContain(
        isBeside ? "all of it is saved in" : "and nothing is lost",
      );
      other.kill("SIGKILL");
      await other.exited;
    }

    expect(saved()).toHaveLength(isBeside ? 1 : 0);
    for (const name of saved())
      expect(await runToEnd({ cwd: home.path, args: ["import", name] })).toMatchObject({
        exitCode: 0,
      });
    expect(await count()).toBe("1");
  },
);

test("a server whose index of the WAL was removed acknowledges no plant that another process does not see", async () => {
  using home = emptyDirectory();
  const options = { cwd: home.path, env: { PORT: "0", AUTH_TOKENS: TOKEN } };
  {
    await using server = await startServer(options);
    expect(await postNumbered(server.url, TOKEN, 1)).toBe(200);
    rmSync(home.at("plants.db-shm"));
    const created = await runToEnd({ cwd: home.path, args: ["token", "create", "greenhouse"] });
    expect(created).toMatchObject({ exitCode: 0 });

    expect(await postNumbered(server.url, TOKEN, 2)).toBe(503);
    expect(await exitCodeOf(server.child)).toBe(1);
    expect(await server.stderr.end).toContain("while it was open; nothing is lost");
  }

  await using server = await startServer(options);
  for (const id of [1, 2]) expect(await postNumbered(server.url, TOKEN, id)).toBe(200);
  const run = (args: string) => runToEnd({ cwd: home.path, args: args.split(" ") });
  expect((await run("plant count")).stdout).toBe("2\n");
  expect((await run("token list")).stdout).toContain("greenhouse");
});

test.each([
  ["the index of the WAL was removed", (database: string) => rmSync(`${database}-shm`), 3],
  ["a backup was moved over the database", putBackup, 1],
] as const)(
  "of two servers, one that notices late that %s overwrites no plant of the other",
  async (_, lose, before) => {
    using home = emptyDirectory();
    const database = home.at("plants.db");
    const options = { cwd: home.path, env: { PORT: "0", AUTH_TOKENS: TOKEN } };
    const run = (args: string) => runToEnd({ cwd: home.path, args: args.split(" ") });
    await using late = await startServer(options);
    await using other = await startServer(options);
    expect(await postNumbered(other.url, TOKEN, 1)).toBe(200);
    await run(`backup ${database}-backup`);
    expect(await postNumbered(late.url, TOKEN, 2)).toBe(200);
    expect(await postNumbered(late.url, TOKEN, 3)).toBe(200);

    lose(database);
    expect(await postNumbered(other.url, TOKEN, 4)).toBe(503);
    expect(await exitCodeOf(other.child)).toBe(1);
    {
      await using again = await startServer(options);
      for (let id = 100; id < 140; id++) expect(await postNumbered(again.url, TOKEN, id)).toBe(200);
      expect(await postNumbered(late.url, TOKEN, 5)).toBe(503);
      expect(await exitCodeOf(late.child)).toBe(1);
      again.child.kill("SIGKILL");
      await again.child.exited;
    }

    expect(await run("check")).toMatchObject({ exitCode: 0 });
    expect((await run("plant count")).stdout).toBe(`${before + 40}\n`);
  },
);

test("a server whose file was removed, and which cannot save it, says what is lost", async () => {
  using home = emptyDirectory();
  mkdirSync(home.at("above/data"), { recursive: true });
  const env = { PORT: "0", DATABASE_URL: `file:${home.at("above/data/plants.db")}` };
  await using server = await startServer({ cwd: home.path, env });
  rmSync(home.at("above"), { recursive: true });

  expect(await server.stop()).toBe(1);
  expect(await server.stderr.end).toContain(
    "and cannot be saved beside it (no such file or directory): unless it was only moved, what is not in a backup is lost",
  );
});

test.skipIf(skipsWithout("jq", "jq"))(
  "the line that counts 503s in the log names the reason and the cause of each",
  async () => {
    const log = [
      { level: "INFO", message: "Stopped" },
      { level: "ERROR", message: "Storage unavailable", cause: { message: "the disk is full" } },
      { level: "WARN", message: "Cannot validate credentials", reason: "keys unavailable" },
      { level: "WARN", message: "Queue full" },
    ];
    const lines = log.map((line) => JSON.stringify(line)).join("\n");
    const [count = ""] = blocks("Many 503s", "sh");
    const script = `journalctl() { echo "$LOG"; }\n${count}`;
    const { stdout } = await runToEnd({
      program: ["sh", "-c", script],
      env: { LOG: `${lines}\nBun v1` },
    });

    expect(stdout.split("\n").map((line) => line.trim())).toEqual([
      "1 Cannot validate credentials: keys unavailable",
      "1 Queue full",
      "1 Storage unavailable: the disk is full",
      "",
    ]);
  },
);

async function postNumbered(url: string, token: string, id: number): Promise<number> {
  return (await post(url, numbered(id), { token })).status;
}

function numbered(id: number): string {
  return `${jsonOf(fern({ id, [TEXT]: `plant ${id}` }))}\n`;
}

test.concurrent("the scrape configuration and the alerts name what there is", async () => {
  const env = { AUTH_TOKENS: TOKEN, ...EVERY_METRIC };
  // And with a token that expires.
  using home = emptyDirectory();
  const args = ["token", "create", "greenhouse", "--expires", "90d"];
  const { stdout } = await runToEnd({ args, cwd: home.path });
  await using server = await startServer({ env, cwd: home.path });
  const tls = { ca: Bun.file(`${CERTIFICATE}.crt`) };
  expect((await post(server.url, undefined, { tls, token: stdout.trim() })).status).toBe(200);

  const scrape = await fetch(`${server.url}/metrics`, { headers: bearer(), tls });
  const there = new Set(Array.from((await scrape.text()).matchAll(/^\w+/gm), ([name]) => name));

  const [scraping = ""] = blocks("Metrics", "yaml");
  const { scrape_configs: jobs } = Bun.YAML.parse(scraping) as {
    scrape_configs: { job_name: string }[];
  };
  const { groups } = Bun.YAML.parse(await ALERTS.text()) as {
    groups: { rules: { expr: string }[] }[];
  };
  const rules = groups.flatMap((group) => group.rules);
  expect(rules.length).toBeGreaterThan(3);

  const used = rules.flatMap(({ expr }) => expr.match(/\bplant_store_\w+/g) ?? []);
  const documented: string[] =
    section("Metrics").match(/(?<=`)plant_store_\w+(?=(?:\{[^`]*\})?`)/g) ?? [];

  // A histogram is documented by its name, and its samples have other ones. `request_id` is an
  // attribute of spans. SQLite has no metrics of PostgreSQL, which have a test of their own, and none
  // of Citus.
  const ofOthers = /^plant_store_(?:request_id$|postgres_|citus_)/;
  const metrics = documented.filter((name) => !ofOthers.test(name));
  const missing = [...used, ...metrics].filter(
    (name) => !there.has(name) && !there.has(`${name}_bucket`),
  );
  const rendered = [...there].filter((name) => name.startsWith("plant_store_"));
  const unlisted = rendered.filter(
    (name) => !documented.includes(name.replace(/_(?:bucket|sum|count)$/, "")),
  );
  expect({ missing, unlisted, used: used.length > 4, metrics: metrics.length > 4 }).toEqual({
    missing: [],
    unlisted: [],
    used: true,
    metrics: true,
  });
  expect(rules.map(({ expr }) => expr).join()).toContain(`up{job="${jobs[0]?.job_name}"}`);
});

/** A case of the alerts: series by their names, and which alerts fire at a moment. */
interface AlertCase {
  readonly series: Readonly<Record<string, string>>;
  readonly at: string;
  readonly fires: readonly string[];
}

const POSTS = (status: number) =>
  `plant_store_requests_total{job="plant-store",path="/plants",method="POST",status="${status}"}`;
const UP = 'up{job="plant-store"}';

/** Samples are 15 seconds apart, in Prometheus' notation of series. */
const ALERT_CASES: Readonly<Record<string, AlertCase>> = {
  "every one of two plants a minute fails": {
    series: { [POSTS(200)]: "0x80", [POSTS(503)]: everySecond(80) },
    at: "19m",
    fires: ["PlantsNotStored"],
  },
  "ten thousand plants fail within one scrape": {
    series: { [POSTS(200)]: "0x80", [POSTS(503)]: "0x20 10000x60" },
    at: "10m",
    fires: ["PlantsNotStored"],
  },
  "every plant fails, beside a hundred requests that are refused for each": {
    series: { [POSTS(401)]: "0+1000x80", [POSTS(503)]: "0+10x80" },
    at: "15m",
    fires: ["PlantsNotStored"],
  },
  "the database was moved away, and nobody posts": {
    series: { plant_store_ready: "1x10 0x40", [UP]: "1x50", [POSTS(503)]: "0x50" },
    at: "8m",
    fires: ["PlantStoreNotReady"],
  },
  "one of two servers stores nothing, and a busy one of another job is well": {
    series: {
      [POSTS(200).replace("plant-store", "staging")]: "0+1000x80",
      [POSTS(200).replace("{", '{instance="a",')]: "0+1000x80",
      [POSTS(503).replace("{", '{instance="b",error="5032",')]: "0+50x80",
    },
    at: "15m",
    fires: ["PlantsNotStored"],
  },
  "the only pod is gone, and its target with it": {
    series: { [UP]: "1x20 stale _x60" },
    at: "10m",
    fires: ["PlantStoreGone"],
  },
  "a server restarts every 75 seconds": {
    series: { [UP]: "0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1" },
    at: "8m",
    fires: ["PlantStoreGone"],
  },
  "a server restarts at once, again and again": {
    series: {
      [UP]: "1x60",
      'process_start_time_seconds{job="plant-store"}': "1x10 100x10 250x10 400x30",
    },
    at: "12m",
    fires: ["PlantStoreRestarts"],
  },
  "checkpoints fail": {
    series: { plant_store_checkpoint_failures_total: "0x4 1+1x60" },
    at: "15m",
    fires: ["CheckpointsFail"],
  },
  "the WAL grows behind a reader": {
    series: { plant_store_wal_bytes: "4e6+2e6x120" },
    at: "30m",
    fires: ["WalGrows"],
  },
  "descriptors run short": {
    series: {
      'process_open_fds{job="plant-store"}': "1020x60",
      'process_max_fds{job="plant-store"}': "1024x60",
    },
    at: "10m",
    fires: ["DescriptorsShort"],
  },
  "a certificate was not renewed": {
    series: { plant_store_certificate_expiration_timestamp_seconds: "604000x400" },
    at: "65m",
    fires: ["CertificateExpires"],
  },
  "a client uses a token that expires in three days": {
    series: {
      'plant_store_token_expiration_timestamp_seconds{token="greenhouse"}': "259200x400",
    },
    at: "65m",
    fires: ["TokenExpires"],
  },
  "the provider's keys cannot be fetched": {
    series: { plant_store_provider_keys_fetched_timestamp_seconds: "0x400" },
    at: "70m",
    fires: ["ProviderKeysOld"],
  },
  "more plants wait than are stored": {
    series: { plant_store_queue_fill_ratio: "0.9x60" },
    at: "10m",
    fires: ["QueueFills"],
  },
  ...Object.fromEntries(
    ["/", "/var", "/var/lib/plant-store"].map((mountpoint) => [
      `the disk at ${mountpoint} has a tenth left`,
      { series: filesystem(mountpoint, 10, 90), at: "15m", fires: ["DiskFills"] },
    ]),
  ),
  "a tenth of the inodes is left": {
    series: filesystem("/var", 90, 10),
    at: "15m",
    fires: ["DiskFills"],
  },
  "the disk of something else is full": {
    series: { ...filesystem("/boot", 1, 1), ...filesystem("/var", 20, 20) },
    at: "15m",
    fires: [],
  },
  "the proxy does not answer, and its certificate has six days left": {
    series: {
      'probe_success{job="plant-store-proxy"}': "0x300",
      'probe_ssl_earliest_cert_expiry{job="plant-store-proxy"}': `${6 * 86_400}x300`,
    },
    at: "70m",
    fires: ["ProxyFails", "ProxyCertificateExpires"],
  },
  "a busy day: one in a thousand fails, a peak of the WAL, one checkpoint repeated, an upgrade": {
    series: {
      [POSTS(200)]: "0+1000x120",
      [POSTS(503)]: "0+1x120",
      [POSTS(500)]: "0x120",
      plant_store_ready: "1x50 0x2 1x70",
      [UP]: "1x50 0x2 1x70",
      'process_start_time_seconds{job="plant-store"}': "1x52 800x70",
      plant_store_wal_bytes: "4e6x90 90e6x10 4e6x20",
      plant_store_queue_fill_ratio: "0.9x8 0.01x112",
      plant_store_checkpoint_failures_total: "0x60 1x60",
    },
    at: "25m",
    fires: [],
  },
  "a quiet night: a plant an hour is stored": {
    series: { [POSTS(200)]: "0x40 1x80", [POSTS(503)]: "0x120", plant_store_ready: "1x120" },
    at: "25m",
    fires: [],
  },
};

/** What the node exporter has of a file system, with a hundred bytes and inodes. */
function filesystem(mountpoint: string, bytes: number, inodes: number): Record<string, string> {
  const of = `{mountpoint="${mountpoint}"}`;
  return {
    [`node_filesystem_avail_bytes${of}`]: `${bytes}x300`,
    [`node_filesystem_size_bytes${of}`]: "100x300",
    [`node_filesystem_files_free${of}`]: `${inodes}x300`,
    [`node_filesystem_files${of}`]: "100x300",
  };
}

/** A counter that grows by one in every second sample. */
function everySecond(samples: number): string {
  return Array.from({ length: samples }, (_, index) => Math.floor(index / 2)).join(" ");
}

test.skipIf(skipsWithout("promtool", "prometheus"))(
  "the alerts fire when plants are not stored, and are quiet otherwise",
  async () => {
    using home = emptyDirectory();
    const alerting = await ALERTS.text();
    const names = Array.from(alerting.matchAll(/alert: (\w+)/g), ([, name = ""]) => name);
    const tests = Object.entries(ALERT_CASES).map(([name, { series, at, fires }]) => ({
      name,
      interval: "15s",
      input_series: Object.entries({ [UP]: "1x400", ...series }).map(([series, values]) => ({
        series,
        values,
      })),
      promql_expr_test: names.map((alertname) => ({
        // Its labels do not matter.
        expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"})`,
        eval_time: at,
        exp_samples: fires.includes(alertname) ? [{ labels: "{}", value: 1 }] : [],
      })),
    }));

    await Bun.write(home.at("rules.yml"), alerting);
    await Bun.write(
      home.at("test.yml"),
      JSON.stringify({ rule_files: ["rules.yml"], evaluation_interval: "15s", tests }),
    );
    const program = ["promtool", "test", "rules", "test.yml"];
    expect(await runToEnd({ program, cwd: home.path })).toMatchObject({ exitCode: 0 });

    const fired = Object.values(ALERT_CASES).flatMap(({ fires }) => fires);
    expect(fired.filter((name) => !names.includes(name))).toEqual([]);
    expect(names.filter((name) => !fired.includes(name))).toEqual(["CommitsSlow"]);
  },
);

test("each alert has a severity, says what happened, and links to a page that helps", async () => {
  const { groups } = Bun.YAML.parse(await ALERTS.text()) as {
    groups: {
      rules: {
        labels: { severity: string };
        annotations: { summary: string; runbook_url: string };
      }[];
    }[];
  };

  for (const { labels, annotations } of groups.flatMap(({ rules }) => rules)) {
    expect(["critical", "warning"]).toContain(labels.severity);
    expect(annotations.summary).not.toBe("");
    const [, path = "", anchor] =
      /\/blob\/main\/([^#]+)(?:#(.*))?$/.exec(annotations.runbook_url) ?? [];
    const html = Bun.markdown.html(await Bun.file(join(ROOT, path)).text(), {
      headings: { ids: true },
    });
    expect(html).toContain(anchor === undefined ? "<h1" : ` id="${anchor}"`);
  }
});

test.skipIf(
  skipsWithout("prometheus", "prometheus") ||
    skipsWithout("prometheus-blackbox-exporter", "prometheus-blackbox-exporter"),
)("the guide's Prometheus scrapes and probes the server, and its alerts arrive", async () => {
  using home = emptyDirectory();
  await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
  const here = (text = "") =>
    text
      .replaceAll("/etc/prometheus", home.path)
      .replace("127.0.0.1:3000", new URL(server.url).host);

  // The user of the test may not give a file to another one.
  const save = STUBS + here(blocks("Metrics", "sh")[0]).replace("-o prometheus ", "");
  const saved = () => Bun.file(home.at("plant-store.token"));
  const run = (script: string) =>
    runToEnd({ program: ["sh", "-c", script], cwd: home.path, env: { PATH } });
  const list = () => run("plant-store token list --database plants.db");

  // Before Prometheus is installed, no token is made that nobody has.
  const missing = save.replaceAll(home.at("plant-store.token"), home.at("missing/token"));
  expect(await run(missing)).toMatchObject({ exitCode: 1, stdout: "" });
  expect((await list()).stdout).not.toContain("prometheus");

  expect(await run(save)).toMatchObject({ exitCode: 0 });
  expect(statSync(home.at("plant-store.token")).mode & 0o777).toBe(0o600);
  // Pasted again, the lines keep the token.
  const token = await saved().text();
  expect(await run(save)).toMatchObject({ exitCode: 1, stdout: "" });
  expect(token).toStartWith("plant_");
  expect(await saved().text()).toBe(token);

  // In place of an Alertmanager.
  const arrived = Promise.withResolvers<unknown>();
  using alertmanager = Bun.serve({
    port: 0,
    async fetch(request) {
      arrived.resolve(await request.json());
      return new Response();
    },
  });
  // The alert of a healthy server that fires at once.
  const watchdog = { name: "watchdog", rules: [{ alert: "Watchdog", expr: "vector(1)" }] };
  await Bun.write(home.at("watchdog.yaml"), Bun.YAML.stringify({ groups: [watchdog] }, null, 2));
  await Bun.write(home.at("alerts.yaml"), ALERTS);

  const [port, probes] = [freePort(), freePort()];
  const around = { global: { scrape_interval: "1s", evaluation_interval: "1s" } };
  const [scraping = ""] = blocks("Metrics", "yaml");
  const [naming = "", probing = ""] = blocks("Alerts and a dashboard", "yaml");
  const alerting = naming
    .replace("alerts.yaml", "alerts.yaml, watchdog.yaml")
    .replace("127.0.0.1:9093", alertmanager.url.host);
  const probe = probing
    .replaceAll(/^/gm, "  ")
    .replace("https://plants.example.org", server.url)
    .replace("127.0.0.1:9115", `127.0.0.1:${probes}`);
  await Bun.write(
    home.at("prometheus.yml"),
    `${Bun.YAML.stringify(around, null, 2)}\n${alerting}${here(scraping)}${probe}`,
  );
  await using blackbox = start({
    program: ["prometheus-blackbox-exporter", "--config.file=/etc/prometheus/blackbox.yml"],
    args: [`--web.listen-address=127.0.0.1:${probes}`],
    cwd: home.path,
  });
  await using prometheus = start({
    program: ["prometheus", "--config.file=prometheus.yml", "--log.level=error"],
    args: [
      `--web.listen-address=127.0.0.1:${port}`,
      "--storage.tsdb.path=data",
      // The first one may be sent before it knows to whom.
      "--rules.alert.resend-delay=1s",
    ],
    cwd: home.path,
  });

  const programs = [blackbox, prometheus];
  const ended = programs.map(async ({ child, stderr }) => {
    await child.exited;
    throw new Error(await stderr.end);
  });
  expect(await Promise.race([arrived.promise, ...ended])).toMatchObject([
    { labels: { alertname: "Watchdog" } },
  ]);
  for (const metric of ['up{job="plant-store"}', 'probe_success{job="plant-store-proxy"}']) {
    const query = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(metric)}`;
    const isOne = async () => (await (await fetch(query)).text()).includes(',"1"]');
    while (!(await onceItListens(isOne))) await Bun.sleep(50);
  }
  expect(programs.map(({ child }) => child.exitCode)).toEqual([null, null]);
});

test.skipIf(skipsWithout("jq", "jq"))(
  "the warnings and errors of the log include why a start was refused, which is not JSON",
  async () => {
    using home = emptyDirectory();
    const refused = await runToEnd({ args: ["--port", "abc"], cwd: home.path });
    expect(refused.stderr).toStartWith("Cannot use --port");
    const lines = ["INFO", "WARN", "ERROR"].map((level) => JSON.stringify({ level }));
    await Bun.write(home.at("log"), `${lines.join("\n")}\n${refused.stderr}`);

    const [filter = ""] = blocks("Read the log", "sh");
    const script = `journalctl() { cat log; }\n${filter}`;
    const shown = await runToEnd({ program: ["sh", "-c", script], cwd: home.path });
    const texts = refused.stderr
      .trim()
      .split("\n")
      .map((line) => JSON.stringify(line));
    expect(shown.exitCode).toBe(0);
    expect(shown.stdout.trim().split("\n")).toEqual([...lines.slice(1), ...texts]);
  },
);

/** The units of the repository, and those of all guides, by their names. */
const units = new Map(
  [
    ...(await Promise.all(
      readdirSync(UNITS)
        .filter((name) => /\.(?:service|timer)$/.test(name))
        .map(async (name) => `${name}\n${await Bun.file(join(UNITS, name)).text()}`),
    )),
    ...guides
      .flatMap(({ text }) => text.match(/(?<=^```ini\n).*?(?=^```)/gms) ?? [])
      .flatMap((block) => block.split(/^# \/etc\/systemd\/system\//m).slice(1)),
  ].map((unit) => {
    const [name = "", ...lines] = unit.split("\n");
    // The programs that they start do not matter here, and need not be installed.
    return [name, lines.join("\n").replaceAll(/^(Exec\w+=-?)[^\s-]\S*/gm, "$1/bin/true")] as const;
  }),
);

test.concurrent("the README's lines on a server create a token, and serve", async () => {
  using home = emptyDirectory();
  const lines = blocks("Deploy", "sh").join("").replaceAll("/var/lib/plant-store", home.path);
  const [create = ""] = lines.match(/^plant-store token create .*$/m) ?? [];
  const [serve = ""] = lines.match(/^NODE_ENV=production plant-store .*$/m) ?? [];
  const on = { cwd: home.path, env: { PATH, PORT: "0" } };

  const program = ["sh", "-c", `exec env ${serve}`];
  expect(await runToEnd({ ...on, program })).toMatchObject({ exitCode: 1, stdout: "" });
  const created = await runToEnd({ ...on, program: ["sh", "-c", create] });
  await using server = await startServer({
    ...on,
    program: ["sh", "-c", `exec env ${serve} "$@"`, "sh"],
  });
  expect(await postNumbered(server.url, created.stdout.trim(), 1)).toBe(200);
});

test.skipIf(skipsWithout("systemd-analyze", "systemd"))(
  "systemd accepts every unit, the server's with and without HTTPS, and finds that one well contained",
  async () => {
    using home = emptyDirectory();
    const analyze = (...args: string[]) =>
      runToEnd({
        program: ["systemd-analyze"],
        args,
        cwd: home.path,
        env: { SYSTEMD_UNIT_PATH: `${home.path}:` },
      });

    const unit = units.get("plant-store.service") ?? "";
    const https = units.get("plant-store.service.d/https.conf") ?? "";
    for (const text of [`${unit}\n${https}`, unit]) {
      for (const [name, content] of units) await Bun.write(home.at(name), content);
      await Bun.write(home.at("plant-store.service"), text);

      const names = [...units.keys()]
        .filter((name) => !name.includes("/"))
        .map((name) => `./${name.replace("@.", "@name.")}`);
      expect(names.length).toBeGreaterThan(4);
      expect(await analyze("verify", ...names)).toMatchObject({ exitCode: 0, stderr: "" });

      const { stdout } = await analyze(
        "security",
        "--offline=yes",
        "--no-pager",
        "./plant-store.service",
      );
      const [, exposure] =
        /Overall exposure level for plant-store\.service: (\d+\.\d)/.exec(stdout) ?? [];
      expect(Number(exposure)).toBeWithin(0, 3);
    }
  },
);

test.concurrent.each([
  ["the lines of HTTPS", 0],
  ["certbot's hook", 1],
] as const)(
  "the server's group can read the key, and everybody the certificate, whatever the umask: %s",
  async (_what, index) => {
    using home = emptyDirectory();
    mkdirSync(home.at("issued"));
    for (const name of ["cert.pem", "key.pem", "fullchain.pem", "privkey.pem"])
      writeFileSync(home.at(`issued/${name}`), name, { mode: 0o600 });

    const script = (blocks("HTTPS", "sh")[index] ?? "")
      .replaceAll("/etc/plant-store", home.path)
      .replace("group=plant-store", `group=${process.getgid?.()}`);
    const { exitCode, stdout } = await runToEnd({
      program: ["sh", "-euc", `umask 077; ${STUBS}${script}`],
      cwd: home.at("issued"),
      env: { RENEWED_LINEAGE: home.at("issued") },
    });

    expect({ exitCode, stdout }).toEqual({
      exitCode: 0,
      stdout: expect.stringContaining("restart plant-store\n"),
    });
    const modes = ["cert.pem", "key.pem"].map((name) => statSync(home.at(name)).mode & 0o777);
    expect(modes).toEqual([0o644, 0o640]);
  },
);

test.skipIf(skipsWithout("nginx", "nginx-light"))(
  "behind the guide's nginx plants are stored, a large body gets the server's own 413, and the log names the client",
  async () => {
    using home = emptyDirectory();
    const env = {
      AUTH_TOKENS: TOKEN,
      TRUST_PROXY: "X-Forwarded-For",
      ACCESS_LOG: "on",
      // A body that nginx sends in one piece: while it still sends, a refusal may get lost.
      MAX_BODY_BYTES: "1000",
    };

    await using server = await startServer({ cwd: home.path, env });
    await using nginx = startNginx(home, server.url);
    const options = {
      headers: { "x-forwarded-for": "192.0.2.9" },
      tls: { ca: Bun.file(`${CERTIFICATE}.crt`) },
    };
    const response = await onceItListens(() => post(nginx.url, undefined, options));

    expect({ status: response.status, body: await response.json() }).toEqual({
      status: 200,
      body: returned(fern()),
    });
    expect(response.headers.get("strict-transport-security")).toBe("max-age=63072000");

    const large = await post(nginx.url, fern({ [TEXT]: "x".repeat(2_000) }), options);
    expect({ status: large.status, body: await large.json() }).toMatchObject({
      status: 413,
      body: { error: 4131 },
    });

    const [line] = await server.stderr.until(/.*"path":"\/plants".*/);
    expect(line).toContain("127.0.0.1");
    expect(line).not.toContain("192.0.2.9");
  },
);

test.skipIf(skipsWithout("nginx", "nginx-light"))(
  "below a path of another site, plants are stored, and the document leads to where they are",
  async () => {
    using home = emptyDirectory();
    await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
    const [, below = ""] = blocks("A proxy in front", "nginx");
    await using nginx = startNginx(home, server.url, below, "", (block) =>
      block.replace(/^ *location \/ .*\n/m, ""),
    );

    const url = `${nginx.url}/garden`;
    const tls = { ca: Bun.file(`${CERTIFICATE}.crt`) };
    expect((await onceItListens(() => post(url, undefined, { tls }))).status).toBe(200);
    const page = await fetch(`${url}/`, { tls });
    expect({ status: page.status, url: page.url }).toEqual({ status: 200, url: `${url}/swagger` });
    const document = (await (await fetch(`${url}/swagger/json`, { tls })).json()) as {
      servers: { url: string }[];
    };
    expect(new URL(document.servers[0]?.url ?? "", `${url}/swagger/json`).href).toBe(`${url}/`);
  },
);

test.skipIf(skipsWithout("nginx", "nginx-light") || skipsWithout("curl", "curl"))(
  "the guide's nginx speaks HTTP/2, limits each client, and names that of Cloudflare",
  async () => {
    using home = emptyDirectory();
    const [zone = "", limit = ""] = blocks("A limit for each client", "nginx");
    const [cloudflare = ""] = blocks("Behind Cloudflare", "nginx");
    const env = {
      AUTH_TOKENS: `${TOKEN},another-${TOKEN}`,
      TRUST_PROXY: "X-Forwarded-For",
      ACCESS_LOG: "on",
    };
    await using server = await startServer({ cwd: home.path, env });
    await using nginx = startNginx(
      home,
      server.url,
      cloudflare.replace("173.245.48.0/20", "127.0.0.1"),
      zone.replace("50r/s", "1r/m").replace("200r/s", "1r/m"),
      (block) =>
        block.replace(
          /^ *location \/ .*\n/m,
          limit.replace("burst=100", "burst=1").replace("burst=400", "burst=2"),
        ),
    );

    const tls = { ca: Bun.file(`${CERTIFICATE}.crt`) };
    const statusOf = async (token: string) =>
      (await post(nginx.url, undefined, { token, tls })).status;
    expect(await onceItListens(() => statusOf(TOKEN))).toBe(200);
    expect(await statusOf(TOKEN)).toBe(200);
    expect(await statusOf(TOKEN)).toBe(429);
    expect(await statusOf(`another-${TOKEN}`)).toBe(200);
    expect((await fetch(`${nginx.url}/plants`, { tls })).status).toBe(429);
    expect((await fetch(`${nginx.url}/readyz`, { tls })).status).toBe(200);

    const { stdout } = await runToEnd({
      program: ["curl", "--silent", "--cacert", `${CERTIFICATE}.crt`, `${nginx.url}/livez`],
      args: ["--header", "CF-Connecting-IP: 203.0.113.7", "--write-out", " HTTP/%{http_version}"],
    });
    expect(stdout).toEndWith(" HTTP/2");
    await server.stderr.until(/203\.0\.113\.7/);
  },
);

test.skipIf(skipsWithout("nginx", "nginx-light"))(
  "with the guide's two servers behind nginx, every plant is stored while one after the other restarts, and one is gone",
  async () => {
    using home = emptyDirectory();
    const serverAt = async (port: number) => {
      const args = ["--port", String(port)];
      const server = start({ args, cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
      await server.stderr.until(/listens on/);
      return server;
    };
    const [one, two] = [freePort(), freePort()];
    const [upstream = "", next = ""] = blocks("Run two servers", "nginx");
    await using first = await serverAt(one);
    await using second = await serverAt(two);
    await using nginx = startNginx(home, `http://127.0.0.1:${two}`, "", "", (block) =>
      block
        .replace(/^upstream .*\n/m, upstream)
        .replace(/^ *proxy_next_upstream off;\n/m, next)
        .replace("10.0.0.1:3000", `127.0.0.1:${one}`)
        .replace("10.0.0.2:3000", `127.0.0.1:${two}`),
    );

    const tls = { ca: Bun.file(`${CERTIFICATE}.crt`) };
    const statuses: number[] = [];
    let id = 0;
    const store = async () =>
      statuses.push((await post(nginx.url, fern({ id: (id += 1) }), { tls })).status);
    await onceItListens(store);

    const stop = new AbortController();
    const clients = Array.from({ length: 8 }, async () => {
      while (!stop.signal.aborted) await store();
    });
    const more = async () => {
      const until = statuses.length + 200;
      while (statuses.length < until) await Bun.sleep(1);
    };
    expect(await first.stop()).toBe(0);
    await using firstAgain = await serverAt(one);
    await more();
    expect(await second.stop()).toBe(0);
    await using secondAgain = await serverAt(two);
    await more();
    firstAgain.child.kill("SIGKILL");
    await firstAgain.child.exited;
    await more();
    stop.abort();
    await Promise.all(clients);
    expect([...new Set(statuses)]).toEqual([200]);
    expect(secondAgain.child.exitCode).toBeNull();
  },
);

test.skipIf(skipsWithout("caddy", "caddy") || skipsWithout("curl", "curl"))(
  "behind the guide's Caddy, requests come by HTTP/2",
  async () => {
    using home = emptyDirectory();
    await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
    const port = freePort();
    const [block = ""] = blocks("A proxy in front", "caddyfile");
    const site = block
      .replace("plants.example.org", `https://localhost:${port}`)
      .replace("127.0.0.1:3000", new URL(server.url).host);
    const options = "{\nadmin off\nauto_https disable_redirects\nskip_install_trust\n}\n";
    await Bun.write(home.at("Caddyfile"), options + site);
    await using caddy = start({
      program: ["caddy", "run", "--config", "Caddyfile", "--adapter", "caddyfile"],
      cwd: home.path,
      env: { HOME: home.path },
    });

    const { stdout } = await runToEnd({
      program: ["curl", "--silent", "--insecure", "--include", `https://localhost:${port}/livez`],
      // Until it listens, with a certificate of its own.
      args: ["--retry", "100", "--retry-all-errors", "--retry-delay", "1"],
    });
    expect(stdout).toStartWith("HTTP/2 200");
    expect(stdout).toContain("strict-transport-security: max-age=63072000");
    expect(caddy.child.exitCode).toBeNull();
  },
);

/**
 * nginx with the guide's server, with more in it and around it, or edited, in front of the server at
 * a URL.
 */
function startNginx(
  home: ReturnType<typeof emptyDirectory>,
  target: string,
  more = "",
  around = "",
  edit = (block: string) => block,
) {
  const port = freePort();
  const [block = ""] = blocks("A proxy in front", "nginx");
  const http = edit(block)
    .replace("127.0.0.1:3000", new URL(target).host)
    .replace(/^ *listen \[::\].*\n/m, "")
    .replace("listen 443 ssl", `listen 127.0.0.1:${port} ssl`)
    .replace(/\/etc\/letsencrypt\S*fullchain.pem/, `${CERTIFICATE}.crt`)
    .replace(/\/etc\/letsencrypt\S*privkey.pem/, `${CERTIFICATE}.key`)
    .replace(/}\n$/, `${more}}\n`);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${home.path}/${name};`,
  );

  writeFileSync(
    home.at("nginx.conf"),
    `daemon off; master_process off; pid ${home.path}/pid; error_log stderr; events {}\nhttp { access_log off; ${temporary.join(" ")}\n${around}${http} }`,
  );

  const args = ["-p", home.path, "-e", "stderr", "-c", home.at("nginx.conf")];
  const nginx = start({ program: ["nginx"], args, cwd: home.path });
  return Object.assign(nginx, { url: `https://localhost:${port}` });
}

/** What a request returns once a server that is starting listens. */
async function onceItListens<T>(request: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await request();
    } catch {
      await Bun.sleep(20);
    }
  }
}

/** The guide's client in a language, and a program that stores a plant by each URL, or prints why not. */
interface GuideClient {
  readonly language: "python" | "go";
  readonly command: readonly string[];
  readonly main: string;
  /** The client with two attempts in the place of eight. */
  readonly impatient: (code: string) => string;
}

const PYTHON: GuideClient = {
  language: "python",
  command: ["/usr/bin/python3"],
  main: `
import sys
plant = json.loads(sys.argv[1])
fields = {field: value for field, value in plant.items() if field != "id"}
for url in sys.argv[2:]:
    try:
        assert store(url, "${TOKEN}", plant) == fields
    except Exception as error:
        print(error)
`,
  impatient: (code) => code.replace("attempts: int = 8", "attempts: int = 2"),
};

const GO: GuideClient = {
  language: "go",
  command: ["go", "run"],
  main: `
func main() {
	for _, url := range os.Args[2:] {
		if err := Store(url, "${TOKEN}", []byte(os.Args[1])); err != nil {
			fmt.Println(err)
		}
	}
}
`,
  impatient: (code) => code.replace("attempt == 8", "attempt == 2"),
};

describe.each([PYTHON, GO])("the guide's client in $language", (client) => {
  const { language, command, main, impatient } = client;
  const isMissing =
    language === "python"
      ? skipsWithout("/usr/bin/python3", "python3")
      : skipsWithout("go", "golang-go");

  const home = emptyDirectory();
  afterAll(() => home[Symbol.dispose]());

  // Go compiles its library once for each user of a machine: 20 s of CPU.
  beforeAll(async () => {
    if (!isMissing) await run([]);
  }, LONG_TEST_TIMEOUT_MS);

  /** Stores a plant by each URL. Resolves to the lines that were printed. */
  async function run(
    urls: readonly string[],
    { plant = jsonOf(fern({ id: INT64_MAX })), isPatient = false } = {},
  ): Promise<string[]> {
    const [guide = ""] = blocks("In Python and Go", language);
    const code = (isPatient ? guide : impatient(guide)).replace(
      '"net/http"\n',
      '"net/http"\n\t"os"\n',
    );
    const path = home.at(`${isPatient ? "patient" : "impatient"}.${language.slice(0, 2)}`);
    await Bun.write(path, `${code}\n${main}`);

    const { exitCode, stdout, stderr } = await runToEnd({
      program: command,
      args: [path, plant, ...urls],
      cwd: home.path,
      env: { HOME: process.env["HOME"] ?? home.path },
    });
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    return stdout.split("\n").slice(0, -1);
  }

  test.skipIf(isMissing)("stores every id exactly, whatever a gateway sends", async () => {
    using directory = emptyDirectory();
    const { path: cwd } = directory;
    await using server = await startServer({ cwd, env: { AUTH_TOKENS: TOKEN } });
    using gateway = startBrokenGateway(server.url);

    expect(await run([gateway.url], { isPatient: true })).toEqual([]);

    const exported = await runToEnd({ args: ["export"], cwd });
    expect(exported.stdout).toBe(`${jsonOf(fern({ id: INT64_MAX }))}\n`);
  });

  test.skipIf(isMissing)(
    "takes no stranger's answer for the server's, and sends again",
    async () => {
      const app = testApp();
      using strangers = startStrangers(app.fetch);
      const urls = STRANGERS.map((_stranger, index) => strangers.once(index));

      expect(await run(urls, { plant: jsonOf(WHOLE) })).toEqual([]);

      expect(urls.filter((url) => strangers.requests(url) !== 2)).toEqual([]);
    },
  );

  test.skipIf(isMissing)("names a stranger's answer in the end", async () => {
    using strangers = startStrangers(() => new Response());
    const urls = STRANGERS.map((_stranger, index) => strangers.always(index));

    const none = language === "python" ? "None" : "";
    expect(await run(urls, { plant: jsonOf(WHOLE) })).toEqual(
      STRANGERS.map(({ status, type = none, location = none }) => {
        return `stored or not: ${status}, ${type}, Location: ${location}`;
      }),
    );
  });

  test.skipIf(isMissing)("ends at a refusal, and at a Retry-After over 60 s", async () => {
    const app = testApp();
    const retryAfters = ["61", "3600", "9".repeat(5_000), "-1", "\u00b2", "soon"];
    const gateways = retryAfters.map((retryAfter) => ({ who: "", status: 503, retryAfter }));
    using strangers = startStrangers(app.fetch, gateways);
    const urls = gateways.map((_gateway, index) => strangers.once(index));

    const lines = await run(urls, { plant: `{"id": "1", ${membersOf(fern())}}` });

    const refusal = `400: \`id\` must be an integer from -9223372036854775808 to 9223372036854775807`;
    expect(lines).toEqual([
      expect.stringMatching(/^asked to wait 61 s/),
      expect.stringMatching(/^asked to wait 3600 s/),
      expect.stringMatching(/^asked to wait (?:inf|65535) s/),
      refusal,
      refusal,
      refusal,
    ]);
    expect(urls.map(strangers.requests)).toEqual([1, 1, 1, 2, 2, 2]);
  });
});
