import { expect, setDefaultTimeout, test } from "bun:test";
import { X509Certificate } from "node:crypto";
import { cpSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { post, TOKEN } from "../support/client.ts";
import { executable } from "../support/executable.ts";
import { blocks } from "../support/guides.ts";
import { missing } from "../support/missing.ts";
import { emptyDirectory, freePort, ROOT, runToEnd, start, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** Whether a test of a program that is not installed has to skip itself, which it says. */
function skipsWithout(program: string, debianPackage: string): boolean {
  return Bun.which(program) === null && missing(`${program}: apt-get install ${debianPackage}`);
}

/** The file in the guides' blocks of this language whose first line names it. */
function file(heading: string, language: string, name: string): string {
  const found = blocks(heading, language).find((code) => code.includes(`# ${name}\n`));
  if (found === undefined) throw new Error(`"${heading}" has no ${name}`);
  return found;
}

async function run(cwd: string, ...program: string[]) {
  return runToEnd({ program, cwd });
}

test.skipIf(skipsWithout("systemd-analyze", "systemd"))(
  "systemd accepts the unit, with and without HTTPS, and finds it well contained",
  async () => {
    using home = emptyDirectory();
    const unit = file("systemd", "ini", "/etc/systemd/system/plant-store.service").replace(
      "/usr/local/bin/plant-store",
      executable()[0],
    );
    const https = file("HTTPS", "ini", "/etc/systemd/system/plant-store.service.d/https.conf");
    for (const text of [unit, `${unit}\n${https}`]) {
      await Bun.write(join(home.path, "plant-store.service"), text);
      const verified = await run(home.path, "systemd-analyze", "verify", "./plant-store.service");
      expect({ exitCode: verified.exitCode, stderr: verified.stderr }).toEqual({ exitCode: 0, stderr: "" });
      const args = ["security", "--offline=yes", "--no-pager", "./plant-store.service"];
      const { stdout } = await run(home.path, "systemd-analyze", ...args);
      const [, exposure] = /Overall exposure level for plant-store\.service: (\d+\.\d)/.exec(stdout) ?? [];
      expect(Number(exposure)).toBeWithin(0, 3);
    }
  },
);

const backup = () =>
  file("Backup", "sh", "/usr/local/bin/plant-store-backup").replaceAll(/\/var\/(lib|backups)\//g, "");

test("the script of the daily backup makes a copy that is checked, and deletes those of two weeks ago", async () => {
  using home = emptyDirectory();
  mkdirSync(join(home.path, "plant-store"));
  await using server = await startServer({ cwd: join(home.path, "plant-store"), env: { AUTH_TOKENS: TOKEN } });
  expect((await post(server.url, { id: 1, name: "Fern" })).status).toBe(200);
  const env = { PATH: `${dirname(executable()[0])}:${process.env["PATH"]}` };
  const old = join(home.path, "plant-store/2020-01-01.db");
  await Bun.write(old, "");
  await run(home.path, "touch", "--date=15 days ago", old);
  const { exitCode, stdout } = await runToEnd({ program: ["sh", "-c", backup()], cwd: home.path, env });
  expect({ exitCode, stdout }).toMatchObject({ exitCode: 0 });
  const copies = await Array.fromAsync(new Bun.Glob("20*.db").scan(join(home.path, "plant-store")));
  expect(copies).toEqual([`${new Date().toLocaleDateString("sv")}.db`]);
});

const CERTIFICATE = join(ROOT, "test/support/tls/localhost.crt");

test.skipIf(skipsWithout("nginx", "nginx-light"))(
  "behind the guide's nginx plants are stored, and the log names the client",
  async () => {
    using home = emptyDirectory();
    const env = { AUTH_TOKENS: TOKEN, TRUST_PROXY: "X-Forwarded-For", ACCESS_LOG: "on" };
    await using server = await startServer({ cwd: home.path, env });
    for (const name of ["localhost.crt", "localhost.key"]) {
      cpSync(join(ROOT, "test/support/tls", name), join(home.path, name));
    }
    const port = freePort();
    const [nginx = ""] = blocks("A proxy in front", "nginx");
    const http = nginx
      .replace("127.0.0.1:3000", new URL(server.url).host)
      .replace("listen 443 ssl", `listen 127.0.0.1:${port} ssl`)
      .replace("/etc/nginx/plants.pem", join(home.path, "localhost.crt"))
      .replace("/etc/nginx/plants.key", join(home.path, "localhost.key"));
    const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
      (name) => `${name}_temp_path ${home.path}/${name};`,
    );
    await Bun.write(
      join(home.path, "nginx.conf"),
      `daemon off; master_process off; pid ${home.path}/pid; error_log stderr; events {}\nhttp { access_log off; ${temporary.join(" ")}\n${http} }`,
    );
    const args = ["-p", home.path, "-e", "stderr", "-c", join(home.path, "nginx.conf")];
    await using _ = start({ program: ["nginx"], args, cwd: home.path });
    const tls = { ca: await Bun.file(CERTIFICATE).text() };
    const address = `https://localhost:${port}`;
    expect(new X509Certificate(tls.ca).subject).toContain("localhost");
    await untilListening(port);
    const response = await fetch(`${address}/plants`, {
      method: "POST",
      headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json", "x-forwarded-for": "192.0.2.9" },
      body: '{"id": 1, "name": "Fern"}',
      tls,
    });
    expect({ status: response.status, body: await response.json() }).toEqual({ status: 200, body: { name: "Fern" } });
    const [line] = await server.stderr.until(/.*\/plants.*/);
    expect(line).toContain("127.0.0.1");
    expect(line).not.toContain("192.0.2.9");
  },
);

async function untilListening(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    try {
      (await Bun.connect({ hostname: "127.0.0.1", port, socket: { data() {} } })).end();
      return;
    } catch {
      await Bun.sleep(50);
    }
  }
  throw new Error(`Nothing listens on port ${port}`);
}

/** Runs a program that stores the largest id, and checks what the server has afterwards. */
async function storesExactly(program: (url: string, directory: string) => Promise<readonly string[]>): Promise<void> {
  using home = emptyDirectory();
  await using server = await startServer({ cwd: home.path, env: { AUTH_TOKENS: TOKEN } });
  const { exitCode, stderr } = await runToEnd({
    program: await program(server.url, home.path),
    cwd: home.path,
    env: { PATH: process.env["PATH"] ?? "", HOME: home.path },
  });
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
  const exported = await runToEnd({ args: ["export"], cwd: home.path });
  expect(exported.stdout).toBe('{"id":9223372036854775807,"name":"Fern"}\n');
}

test.skipIf(skipsWithout("/usr/bin/python3", "python3"))("the guide's client in Python stores every id exactly", () =>
  storesExactly(async (url, directory) => {
    const [code = ""] = blocks("In Python and Go", "python");
    const call = `assert store("${url}", "${TOKEN}", {"id": 9223372036854775807, "name": "Fern"}) == {"name": "Fern"}`;
    await Bun.write(join(directory, "client.py"), `${code}\n${call}\n`);
    return ["/usr/bin/python3", "client.py"];
  }),
);

test.skipIf(skipsWithout("go", "golang-go"))("the guide's client in Go stores every id exactly", () =>
  storesExactly(async (url, directory) => {
    const [code = ""] = blocks("In Python and Go", "go");
    const call = `Store("${url}", "${TOKEN}", []byte("{\\"id\\": 9223372036854775807, \\"name\\": \\"Fern\\"}"))`;
    const main = `func main() {\n\tif err := ${call}; err != nil {\n\t\tpanic(err)\n\t}\n}\n`;
    await Bun.write(join(directory, "client.go"), `${code}\n${main}`);
    return ["go", "run", "client.go"];
  }),
);
