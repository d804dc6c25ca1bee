import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { blocks, section } from "../support/guides.ts";
import { bearer, post, TOKEN, untilTokenIs } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { bodyOf, limited, randomFrom, printedSeed, randomPlants } from "../support/load.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** One connection's worth of posts: resolves to the lines of those acknowledged. */
async function postAll(url: string, token: string, bodies: Iterable<string>): Promise<string[]> {
  const acknowledged: string[] = [];
  for (const body of bodies) {
    const response = await post(url, body, { token });
    await response.text();
    if (response.status === 200) acknowledged.push(body);
  }
  return acknowledged;
}

async function statusOf(url: string, token: string): Promise<number> {
  return (await fetch(`${url}/metrics`, { headers: bearer(token) })).status;
}

/** The sum of a counter's samples. */
async function counted(url: string, token: string, sample: string): Promise<number> {
  const response = await fetch(`${url}/metrics`, { headers: bearer(token) });
  const lines = (await response.text()).split("\n").filter((line) => line.startsWith(sample));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

function* bodies(seed: number, count: number): Generator<string> {
  const next = limited(randomPlants(randomFrom(seed), { again: 0 }), count);
  for (let plant = next(); plant !== undefined; plant = next()) yield bodyOf(plant);
}

test.concurrent("an operator's year: start, tokens, load, metrics, backup, restore, export, import, stop", async () => {
  using home = emptyDirectory();
  using elsewhere = emptyDirectory();
  const seed = printedSeed("operator");
  const call = (cwd: string, ...args: string[]) => runToEnd({ cwd, args });

  // The first start, with the token that it prints, and one of the operator's own.
  await using server = await startServer({ cwd: home.path });
  const [first] = await server.stderr.until(/plant_\w{38}/);
  expect(await postAll(server.url, first, ['{"id": 1, "name": "Fern"}'])).toHaveLength(1);
  const created = await call(home.path, "token", "create", "greenhouse", "--expires", "90d");
  expect(created.exitCode).toBe(0);
  const token = created.stdout.trim();

  // The other one is revoked, and a copied database gives nobody access.
  expect((await call(home.path, "token", "revoke", "first-start")).exitCode).toBe(0);
  await untilTokenIs(200, server.url, token);
  await untilTokenIs(401, server.url, first);
  expect(readFileSync(join(home.path, "plants.db")).includes(token)).toBe(false);

  // Load, which the metrics see, and a backup in the middle of it.
  const early = await postAll(server.url, token, bodies(seed, 200));
  // The first scrape: what one before it got would be repeated for a second.
  expect(await counted(server.url, token, 'plant_store_plants_total{outcome="added"}')).toBe(1 + early.length);
  const late = Array.from({ length: 8 }, (_, client) => postAll(server.url, token, bodies(seed + 1 + client, 50)));
  const saved = await call(home.path, "backup", "saved.db");
  expect({ exitCode: saved.exitCode, stdout: saved.stdout }).toEqual({ exitCode: 0, stdout: "" });
  const all = [...early, ...(await Promise.all(late)).flat()];

  // Restored elsewhere, the backup has every plant that was acknowledged before it began.
  copyFileSync(join(home.path, "saved.db"), join(elsewhere.path, "plants.db"));
  const restored = await call(elsewhere.path, "export");
  const restoredIds = new Set(restored.stdout.split("\n").map(idOf));
  expect(early.map(idOf).filter((id) => !restoredIds.has(id))).toEqual([]);

  // What the server exports while it runs has every plant, and comes out of an empty store as it went in.
  const exported = await call(home.path, "export");
  expect(exported.exitCode).toBe(0);
  const exportedIds = exported.stdout.trimEnd().split("\n").map(idOf);
  expect(new Set(exportedIds)).toEqual(new Set(["1", ...all.map(idOf)]));
  const empty = join(elsewhere.path, "empty");
  mkdirSync(empty);
  writeFileSync(join(empty, "plants.ndjson"), exported.stdout);
  const imported = await call(empty, "import", "plants.ndjson");
  expect(imported.exitCode).toBe(0);
  expect(imported.stderr).toBe(`${exportedIds.length} added, 0 already there, 0 refused\n`);
  expect((await call(empty, "export")).stdout).toBe(exported.stdout);

  // The restored store serves, with the tokens that it knew.
  {
    await using again = await startServer({ cwd: elsewhere.path });
    expect(await postAll(again.url, token, early.slice(0, 20))).toHaveLength(20);
    expect(await statusOf(again.url, first)).toBe(401);
  }
  server.child.kill("SIGTERM");
  expect(await server.child.exited).toBe(0);
});

/** The digits of a line's or a body's id. */
function idOf(line: string): string {
  return /^\{"id": ?(-?\d+)/.exec(line)?.[1] ?? "";
}

test.concurrent("the operator's chapters, followed in order", async () => {
  using home = emptyDirectory();
  const env = { PATH: `${dirname(executable()[0])}:${process.env["PATH"]}`, PORT: "0" };
  const follow = (script: string) => runToEnd({ program: ["sh", "-ec", script], cwd: home.path, env });
  const serve = () => startServer({ program: ["plant-store"], cwd: home.path, env });

  let token: string;
  // The chapters name the paths of a server; here all is in one directory, and there is no systemd.
  const [backup = ""] = blocks("Backup", "sh").map((code) => code.replace("/var/backups/plants.db", "copy.db"));
  const [restore = ""] = blocks("Restore", "sh").map((code) =>
    code
      .replaceAll(/^systemctl.*\n/gm, "")
      .replace(/\/var\/backups\S+/, "copy.db")
      .replace("/var/lib/plant-store/", ""),
  );
  {
    await using server = await serve();
    const [first] = await server.stderr.until(/plant_\w{38}/);
    token = first;
    expect(await postNumbered(server.url, token, 1)).toBe(200);

    const [tokens = ""] = blocks("Tokens", "sh");
    const { exitCode, stdout } = await follow(tokens);
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/^plant_[0-9A-Za-z]{38}\n.*\bgreenhouse\b/s);

    const [reading = ""] = blocks("Export and import", "sh");
    expect(await follow(reading)).toMatchObject({ exitCode: 0, stderr: "0 added, 1 already there, 0 refused\n" });
    expect(await follow(backup)).toMatchObject({ exitCode: 0 });
    expect(await postNumbered(server.url, token, 2)).toBe(200);
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
  }

  expect(await follow(restore)).toMatchObject({ exitCode: 0 });
  await using server = await serve();
  expect((await follow("plant-store export")).stdout).toBe('{"id":1,"name":"plant 1"}\n');
  expect(await postNumbered(server.url, token, 2)).toBe(200);
});

async function postNumbered(url: string, token: string, id: number): Promise<number> {
  return (await post(url, { id, name: `plant ${id}` }, { token })).status;
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
}

test.concurrent("the scrape configuration and the alerts name what there is", async () => {
  using home = emptyDirectory();
  await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
  expect(await postNumbered(server.url, TOKEN, 1)).toBe(200);
  const scrape = await fetch(`${server.url}/metrics`, { headers: bearer() });
  const there = new Set(Array.from((await scrape.text()).matchAll(/^\w+/gm), ([name]) => name));

  const [scraping = "", alerting = ""] = blocks("Metrics", "yaml");
  const { scrape_configs: jobs } = Bun.YAML.parse(scraping) as { scrape_configs: { job_name: string }[] };
  const { groups } = Bun.YAML.parse(alerting) as Rules;
  const rules = groups.flatMap((group) => group.rules);
  expect(rules).toHaveLength(3);
  const used = rules.flatMap(({ expr }) => expr.match(/\bplant_store_\w+/g) ?? []);
  const documented = Array.from(
    section("Metrics").matchAll(/`(plant_store_\w+)(?:\{[^`]*\})?`/g),
    ([, name = ""]) => name,
  );
  // A histogram is documented by its name, and has samples of others; a span's attribute is none of Prometheus', and
  // PostgreSQL's metrics have a test of their own.
  const metrics = documented.filter((name) => !/^plant_store_(?:request_id$|postgres_)/.test(name));
  const missing = [...used, ...metrics].filter((name) => !there.has(name) && !there.has(`${name}_bucket`));
  expect({ missing, used: used.length, metrics: metrics.length > 4 }).toEqual({ missing: [], used: 2, metrics: true });
  expect(rules.map(({ expr }) => expr).join()).toContain(`up{job="${jobs[0]?.job_name}"}`);
});
