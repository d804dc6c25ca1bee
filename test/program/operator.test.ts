import { expect, setDefaultTimeout, test } from "bun:test";
import { dirname } from "node:path";
import { blocks, section } from "../support/guides.ts";
import { bearer, post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, runToEnd, startServer } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

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

test.concurrent("the scrape configuration and the alerts name what there is", async () => {
  await using server = await startServer({ env: { AUTH_TOKENS: TOKEN } });
  expect(await postNumbered(server.url, TOKEN, 1)).toBe(200);
  const scrape = await fetch(`${server.url}/metrics`, { headers: bearer() });
  const there = new Set(Array.from((await scrape.text()).matchAll(/^\w+/gm), ([name]) => name));

  const [scraping = "", alerting = ""] = blocks("Metrics", "yaml");
  const { scrape_configs: jobs } = Bun.YAML.parse(scraping) as { scrape_configs: { job_name: string }[] };
  const { groups } = Bun.YAML.parse(alerting) as { groups: { rules: { expr: string }[] }[] };
  const rules = groups.flatMap((group) => group.rules);
  expect(rules).toHaveLength(3);
  const used = rules.flatMap(({ expr }) => expr.match(/\bplant_store_\w+/g) ?? []);
  const documented = section("Metrics").match(/(?<=`)plant_store_\w+(?=(?:\{[^`]*\})?`)/g) ?? [];
  // A histogram is documented by its name, and has samples of others; a span's attribute is none of Prometheus', and
  // PostgreSQL's metrics have a test of their own.
  const metrics = documented.filter((name) => !/^plant_store_(?:request_id$|postgres_)/.test(name));
  const missing = [...used, ...metrics].filter((name) => !there.has(name) && !there.has(`${name}_bucket`));
  expect({ missing, used: used.length, metrics: metrics.length > 4 }).toEqual({ missing: [], used: 2, metrics: true });
  expect(rules.map(({ expr }) => expr).join()).toContain(`up{job="${jobs[0]?.job_name}"}`);
});
