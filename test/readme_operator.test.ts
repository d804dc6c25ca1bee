import { expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { buildExecutable } from "./support/executable.ts";
import { emptyDirectory, PATIENCE, ROOT, runToEnd, startServer } from "./support/program.ts";

setDefaultTimeout(PATIENCE);

const readme = await Bun.file(join(ROOT, "README.md")).text();

/** What a chapter has in its blocks of one language, in order. */
function blocks(chapter: string, language: string): string[] {
  const text = readme.split(/^##+ /m).find((part) => part.startsWith(`${chapter}\n`)) ?? "";
  return Array.from(text.matchAll(new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "gs")), ([, code = ""]) => code);
}

test("the operator's chapters, followed to the letter", async () => {
  using executable = await buildExecutable();
  using home = emptyDirectory();
  const env = { PATH: `${executable.directory}:${process.env["PATH"]}`, PORT: "0" };
  const follow = (script: string) => runToEnd({ program: ["sh", "-ec", script], cwd: home.path, env });
  const serve = () => startServer({ program: ["plant-store"], cwd: home.path, env });

  let token: string;
  {
    await using server = await serve();
    const [first] = await server.stderr.until(/plant_\w{38}/);
    token = first;
    expect(await post(server.url, token, 1)).toBe(200);

    const [tokens = ""] = blocks("Tokens", "sh");
    const { exitCode, stdout } = await follow(tokens);
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/^plant_[0-9A-Za-z]{38}\n.*\bgreenhouse\b/s);

    const [reading = "", backup = ""] = blocks("Reading and restoring", "sh");
    expect(await follow(reading)).toMatchObject({ exitCode: 0, stderr: "0 added, 1 already there, 0 refused\n" });
    expect(await follow(backup)).toMatchObject({ exitCode: 0 });
    expect(await post(server.url, token, 2)).toBe(200);
    server.child.kill("SIGTERM");
    expect(await server.child.exited).toBe(0);
  }

  // "Move plants.db, plants.db-wal and plants.db-shm away together, copy the backup to plants.db, start the server."
  mkdirSync(join(home.path, "away"));
  for (const file of await Array.fromAsync(new Bun.Glob("plants.db*").scan(home.path))) {
    renameSync(join(home.path, file), join(home.path, "away", file));
  }
  copyFileSync(join(home.path, "plants-backup.db"), join(home.path, "plants.db"));
  await using server = await serve();
  expect((await follow("plant-store export")).stdout).toBe('{"id":1,"name":"plant 1"}\n');
  expect(await post(server.url, token, 2)).toBe(200);
});

async function post(url: string, token: string, id: number): Promise<number> {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const body = JSON.stringify({ id, name: `plant ${id}` });
  return (await fetch(`${url}/plants`, { method: "POST", headers, body })).status;
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
}

test("the scrape configuration and the alerts name what there is", async () => {
  using home = emptyDirectory();
  const known = "known-token-0123456789";
  await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: known } });
  expect(await post(server.url, known, 1)).toBe(200);
  const scrape = await fetch(`${server.url}/metrics`, { headers: { authorization: `Bearer ${known}` } });
  const there = new Set(Array.from((await scrape.text()).matchAll(/^\w+/gm), ([name]) => name));

  const [scraping = "", alerting = ""] = blocks("Metrics", "yaml");
  const { scrape_configs: jobs } = Bun.YAML.parse(scraping) as { scrape_configs: { job_name: string }[] };
  const { groups } = Bun.YAML.parse(alerting) as Rules;
  const rules = groups.flatMap((group) => group.rules);
  expect(rules).toHaveLength(3);
  const used = rules.flatMap(({ expr }) => expr.match(/\bplant_store_\w+/g) ?? []);
  const documented = Array.from(readme.matchAll(/`(plant_store_\w+)(?:\{[^`]*\})?`/g), ([, name = ""]) => name);
  // A histogram is documented by its name, and has samples of others; a span's attribute is none of Prometheus'.
  const metrics = documented.filter((name) => name !== "plant_store_request_id");
  const missing = [...used, ...metrics].filter((name) => !there.has(name) && !there.has(`${name}_bucket`));
  expect({ missing, used: used.length, metrics: metrics.length > 4 }).toEqual({ missing: [], used: 2, metrics: true });
  expect(rules.map(({ expr }) => expr).join()).toContain(`up{job="${jobs[0]?.job_name}"}`);
});
