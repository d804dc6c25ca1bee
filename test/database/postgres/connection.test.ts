import { beforeAll, describe, expect, test } from "bun:test";
import { createPrivateKey } from "node:crypto";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Connection } from "../../../src/database/postgres/connection.ts";
import { PostgresFailure } from "../../../src/database/postgres/errors.ts";
import { failover } from "../../../src/database/postgres/failover.ts";
import {
  describeHost,
  parsePostgresUrl,
  type PostgresHost,
} from "../../../src/database/postgres/url.ts";
import { HOSTILE_PLANTS } from "../../support/database_fixture.ts";
import { missing, skipped } from "../../support/missing.ts";
import { skipsCluster, startCluster } from "../../support/postgres.ts";
import { openDatabase, openPostgres, withCluster } from "../../support/postgres_database.ts";
import { emptyDirectory, freePort, ROOT, TEST_TIMEOUT_MS } from "../../support/program.ts";
import { startProxy } from "../../support/tcp_proxy.ts";

const TLS = join(ROOT, "test/support/tls");
const FILES = "sslrootcert, sslcert or sslkey";
const UNUSABLE = `${FILES} cannot be used: each must be PEM, and sslkey unencrypted and the key of sslcert (ERR_`;

/**
 * Who has a password needs it, `tls` a connection with TLS, and who is named as a host is a
 * certificate of that name.
 */
const HBA = `hostssl all localhost,example.org all cert
host all localhost,example.org all reject
host all secret,rotated,secret_2 127.0.0.1/32 scram-sha-256
hostssl all tls all trust
host all tls all reject
host all all all trust
local all all trust
`;

/**
 * Settings that a role may have otherwise than PostgreSQL, and that could change a value or its
 * comparison.
 */
const STRANGE = {
  array_nulls: "off",
  backslash_quote: "on",
  bytea_output: "escape",
  client_encoding: "latin1",
  DateStyle: "SQL, DMY",
  default_transaction_deferrable: "on",
  default_transaction_isolation: "serializable",
  escape_string_warning: "off",
  extra_float_digits: "-15",
  IntervalStyle: "sql_standard",
  quote_all_identifiers: "on",
  standard_conforming_strings: "off",
  TimeZone: "Asia/Kathmandu",
  transform_null_equals: "on",
};

describe.skipIf(skipsCluster())("failover()", () => {
  const cluster = withCluster({
    settings: {
      ssl: "on",
      ssl_ca_file: "server.crt",
      listen_addresses: "127.0.0.1,127.0.0.2,::1",
      // The data directory.
      unix_socket_directories: ".",
    },
    files: {
      "pg_hba.conf": HBA,
      "empty.crt": "",
      "server.crt": readFileSync(join(TLS, "localhost.crt"), "utf8"),
      "server.key": readFileSync(join(TLS, "localhost.key"), "utf8"),
    },
  });

  beforeAll(async () => {
    await cluster().run(
      "CREATE ROLE secret LOGIN PASSWORD 'pass word/%'",
      "CREATE ROLE strange SUPERUSER LOGIN",
    );
    for (const role of ["tls", "localhost", "example.org"])
      await cluster().run(`CREATE ROLE "${role}" LOGIN`);
  });

  async function connect(url: string): Promise<Disposable & Connection> {
    const connection = await failover(patient(url)).connect();
    return { ...connection, [Symbol.dispose]: connection.close };
  }

  /** A busy machine needs more time than what is usual. */
  function patient(url: string) {
    const parsed = parsePostgresUrl(url);
    return url.includes("connect_timeout")
      ? parsed
      : { ...parsed, connectTimeoutMs: TEST_TIMEOUT_MS };
  }

  async function failureOf(url: string): Promise<{ code: string; message: string }> {
    try {
      using connection = await connect(url);
      throw new Error(`Connected to ${describeHost(connection.host)}`);
    } catch (error) {
      if (!(error instanceof PostgresFailure)) throw error;
      return { code: error.code, message: error.message };
    }
  }

  const noServer = (reason: string, host = "127.0.0.1") => ({
    code: "NO_SERVER",
    message: expect.stringContaining(`${host}:${cluster().port}: ${reason}`),
  });

  async function setting(connection: Connection, name: string): Promise<unknown> {
    return (
      await connection.query<{ value: unknown }>("SELECT current_setting($1) AS value", [name])
    )[0]?.value;
  }

  const at = (user: string, rest = "", host = "127.0.0.1") =>
    `postgres://${user}@${host}:${cluster().port}/postgres${rest}`;

  test("connects with a password, and says clearly that one is wrong", async () => {
    using connection = await connect(at("secret:pass%20word%2F%25"));
    expect(await setting(connection, "is_superuser")).toBe("off");

    for (const user of ["secret:wrong", "secret"]) {
      expect(await failureOf(at(user))).toEqual(
        noServer("it rejects this user or password (28P01)"),
      );
    }

    expect(await failureOf(at("nobody"))).toEqual(
      noServer('it refuses the user: role "nobody" does not exist (28000)'),
    );

    const missing = at("postgres").replace(/postgres$/, "missing");
    expect(await failureOf(missing)).toEqual(noServer("it has no such database (3D000)"));
  });

  test("takes a rotated user and password from the URL, and nothing else", async () => {
    await cluster().run("CREATE ROLE rotated LOGIN PASSWORD 'old'");
    let url = at("rotated:old");
    const servers = failover(patient(url), { readUrl: async () => patient(url) });
    const connected = async () => {
      const connection = await servers.connect();
      const [row] = await connection.query("SELECT current_user, current_database()");
      connection.close();
      return row;
    };
    const rejected = noServer("it rejects this user or password (28P01)");
    expect(await connected()).toEqual({ current_user: "rotated", current_database: "postgres" });

    await cluster().run("ALTER ROLE rotated PASSWORD 'new'");
    for (const _ of ["the URL is the same", "still"])
      expect(await connected().catch((error: unknown) => error)).toMatchObject(rejected);

    // Another host or database needs a restart.
    url = "postgres://rotated:new@127.0.0.3:1/template1";
    expect(await connected().catch((error: unknown) => error)).toMatchObject(rejected);
    expect(await connected()).toEqual({ current_user: "rotated", current_database: "postgres" });

    await cluster().run("DROP ROLE rotated", "CREATE ROLE secret_2 LOGIN PASSWORD 'sesame'");
    url = at("secret_2:sesame");
    expect(await connected().catch((error: unknown) => error)).toMatchObject(rejected);
    expect(await connected()).toEqual({ current_user: "secret_2", current_database: "postgres" });
  });

  test("says why a rotated password could not be read", async () => {
    const readUrl = () => Promise.reject(new Error('Cannot use "url": it is empty'));
    const connecting = failover(patient(at("secret:wrong")), { readUrl }).connect();
    const reason = 'it rejects this user or password (28P01); Cannot use "url": it is empty';
    expect(await connecting.catch((error: unknown) => error)).toMatchObject(noServer(reason));
  });

  test("reads the certificates that the URL names for each connection", async () => {
    using directory = emptyDirectory();
    const names = {
      sslrootcert: "localhost.crt",
      sslcert: "localhost.crt",
      sslkey: "localhost.key",
    };
    const write = (file: string, name: string) =>
      writeFileSync(directory.at(name), readFileSync(join(TLS, file)));
    const parameters = Object.keys(names).map((name) => `${name}=${directory.at(name)}`);
    const url = at("localhost", `?sslmode=verify-ca&${parameters.join("&")}`);
    const servers = failover(patient(url));
    const connected = () =>
      servers.connect().then(
        (connection) => connection.close(),
        (error: Error) => error.message,
      );

    for (const [name, file] of Object.entries(names)) write(file, name);
    expect(await connected()).toBeUndefined();

    write("renewed.crt", "sslrootcert");
    expect(await connected()).toContain("its certificate is not trusted");

    write("localhost.crt", "sslrootcert");
    write("renewed.crt", "sslcert");
    write("renewed.key", "sslkey");
    expect(await connected()).toContain("the server may not trust sslcert");
  });

  test("at() uses no server that it is no longer told of", async () => {
    const [old, other] = ["127.0.0.1", "127.0.0.2"].map((host) => ({ host, port: cluster().port }));
    let hosts = [old as PostgresHost];
    const servers = failover(patient(cluster().url("postgres"))).at(() => hosts);
    const before = await servers.connect();
    expect([before.host, servers.current()]).toEqual([old, old] as PostgresHost[]);

    hosts = [other as PostgresHost];
    expect(servers.current()).toBe(other as PostgresHost);
    const after = await servers.connect();
    expect([after.host, servers.current()]).toEqual([other, other] as PostgresHost[]);
    for (const { close } of [before, after]) close();
  });

  test("connects through a unix socket, without TLS", async () => {
    using connection = await connect(at("tls", "", encodeURIComponent(cluster().data)));
    expect(await setting(connection, "is_superuser")).toBe("off");
    expect([...(await connection.query("SELECT inet_client_addr() AS address"))]).toEqual([
      { address: null },
    ]);
    expect(await failureOf(at("tls", "", "%2Fmissing"))).toMatchObject({
      message: expect.stringContaining("/missing:"),
    });
  });

  test("uses the URL's database and sslmode, whatever the environment says", async () => {
    const other = {
      PGDATABASE: "missing",
      PGUSER: "nobody",
      PGHOST: "192.0.2.1",
      PGPORT: "1",
      PGPASSWORD: "no",
    };

    const modes = {
      PGSSLMODE: "verify-full",
      PGCONNECT_TIMEOUT: "soon",
      PGCHANNELBINDING: "require",
    };
    const more = { DATABASE_URL: "postgres://192.0.2.1/a", PGOPTIONS: "-c role=tls" };
    const password = { PGPASSWORD: "pass word/%" };
    const insecure = { NODE_TLS_REJECT_UNAUTHORIZED: "0" };
    const secret = at("secret:pass%20word%2F%25");
    const notTrusted = "its certificate is not trusted: set sslrootcert to the CA's PEM file";

    for (const [env, url, result] of [
      [{ ...other, ...modes, ...more }, secret, "postgres as secret"],
      [password, at("secret"), "it rejects this user or password (28"],
      [password, at("secret:"), "it rejects this user or password (28"],
      [
        { PGSSLMODE: "nonsense" },
        secret,
        "PGSSLMODE in the environment is invalid: remove it (ERR_INVALID_ARG_VALUE)",
      ],
      [insecure, at("tls", "?sslmode=verify-ca", "localhost"), notTrusted],
      [insecure, at("tls", "?sslmode=verify-full", "localhost"), notTrusted],
      [insecure, at("tls", "?sslmode=require"), "postgres as tls"],
      // As for libpq, `require` with certificates to trust is `verify-ca`.
      [insecure, at("tls", `?sslmode=require&sslrootcert=${join(TLS, "renewed.crt")}`), notTrusted],
    ] as const) {
      expect(await connectIn(env, url)).toContain(result);
    }
  });

  /**
   * Connects in a process with an environment of its own; gives the database and the role, or the
   * refusal.
   */
  async function connectIn(env: Readonly<Record<string, string>>, url: string): Promise<string> {
    const script = `
      const { failover } = await import("./src/database/postgres/failover.ts");
      const { parsePostgresUrl } = await import("./src/database/postgres/url.ts");
      try {
        const url = { ...parsePostgresUrl(process.argv[1]), connectTimeoutMs: 60_000 };
        const connection = await failover(url).connect();
        const [row] = await connection.query("SELECT current_database() || ' as ' || current_user AS found");
        console.log(row.found);
        connection.close();
      } catch (error) {
        console.log(error.message);
      }`;

    const child = Bun.spawn([process.execPath, "-e", script, url], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"] ?? "", ...env },
      // Bun warns of NODE_TLS_REJECT_UNAUTHORIZED.
      stderr: "ignore",
    });

    return (await new Response(child.stdout).text()).trim();
  }

  test("turns synchronous_commit on for a role that has less, and keeps it if it is more", async () => {
    const modes = {
      off: "on",
      local: "on",
      remote_write: "on",
      on: "on",
      remote_apply: "remote_apply",
    };

    for (const [set, found] of Object.entries(modes)) {
      await cluster().run(`ALTER ROLE tls SET synchronous_commit = ${set}`);
      using connection = await connect(at("tls", "?sslmode=require"));
      expect(await setting(connection, "synchronous_commit")).toBe(found);
    }
  });

  test("stores and returns the same, whatever the settings of the role", async () => {
    for (const [name, value] of Object.entries(STRANGE))
      await cluster().run(`ALTER ROLE strange SET ${name} = '${value}'`);

    await using database = await openDatabase(cluster(), { role: "strange" });
    await using reader = await openPostgres(parsePostgresUrl(database.url), { access: "read" });
    for (const outcome of ["added", "present"] as const)
      expect(new Set(await database.add(HOSTILE_PLANTS))).toEqual(new Set([outcome]));

    const token = {
      name: "gate",
      digest: new Uint8Array(32).fill(0x5c),
      createdAt: new Date("2026-02-01T00:00:00.001Z"),
      expiresAt: new Date("2027-02-01T00:00:00.002Z"),
      scopes: [],
    };
    await database.tokens.add(token);
    expect(await database.tokens.list()).toEqual([{ ...token, revokedAt: null, lastUsedAt: null }]);

    for (const { pages } of [database, reader])
      expect((await Array.fromAsync(pages())).flat()).toEqual([...HOSTILE_PLANTS]);
  });

  test("refuses a server that may lose what it has acknowledged", async () => {
    for (const name of ["fsync", "full_page_writes"]) {
      await cluster().set(name, "off");
      expect(await failureOf(at("postgres"))).toEqual({
        code: "UNSAFE",
        message: `127.0.0.1:${cluster().port}: ${name} is off, so it may lose acknowledged plants: set it to on`,
      });
      await cluster().set(name, "on");
    }

    using connection = await connect(at("postgres"));
    expect(await setting(connection, "fsync")).toBe("on");
  });

  test.each([
    ["", "application_name", "plant-store"],
    ["?application_name=greenhouse%201", "application_name", "greenhouse 1"],
    // When to give up a client that is gone: after a minute. While a reply is unacknowledged, no
    // keepalive is sent.
    ["", "tcp_keepalives_idle", "30"],
    ["", "tcp_keepalives_interval", "10"],
    ["", "tcp_keepalives_count", "3"],
    ["", "tcp_user_timeout", "60000"],
  ])('with the parameters "%s" a session has %s = %s', async (parameters, name, value) => {
    using connection = await connect(at("postgres", parameters));
    expect(await setting(connection, name)).toBe(value);
  });

  test("skips a server that may lose what it has acknowledged, if another one is available", async () => {
    // It may take an fsync that failed for one that succeeded.
    await using unsafe = await startCluster({ settings: { data_sync_retry: "on" } });
    const bad = `127.0.0.1:${unsafe.port}`;
    const good = `127.0.0.1:${cluster().port}`;
    const through = (...hosts: string[]) => `postgres://postgres@${hosts.join(",")}/postgres`;

    for (const url of [through(bad, good), through(good, bad)]) {
      using connection = await connect(url);
      expect(connection.host.port).toBe(cluster().port);
    }

    const reason = `${bad}: data_sync_retry is on, so it may lose acknowledged plants: set it to off`;
    expect(await failureOf(through(bad, bad))).toEqual({
      code: "UNSAFE",
      message: `${reason}; ${reason}`,
    });

    // The other one may be back in a moment.
    const { code, message } = await failureOf(through(bad, "127.0.0.1:1"));
    expect(code).toBe("NO_SERVER");
    // On a busy machine, the second one may fail first.
    for (const why of [reason, "127.0.0.1:1: connection refused"]) expect(message).toContain(why);
  });

  test.each([
    [
      "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)",
      "CockroachDB",
    ],
    [
      "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6, 64-bit",
      "YugabyteDB",
    ],
  ])("refuses an engine that only speaks the protocol: %s", async (version, engine) => {
    const role = engine.toLowerCase();
    await cluster().run(
      `CREATE ROLE ${role} LOGIN`,
      `CREATE SCHEMA ${role} AUTHORIZATION ${role}`,
      `CREATE FUNCTION ${role}.version() RETURNS text LANGUAGE sql AS $$ SELECT '${version}' $$`,
      // Its own function comes before PostgreSQL's.
      `ALTER ROLE ${role} SET search_path = ${role}, pg_catalog`,
    );

    expect(await failureOf(at(role))).toEqual({
      code: "UNSAFE",
      message: `127.0.0.1:${cluster().port}: it is ${engine}, which is untested: use PostgreSQL itself`,
    });
  });

  test("skips a server that is read-only or does not listen", async () => {
    await cluster().run("ALTER ROLE tls SET default_transaction_read_only = on");
    const url = at("tls", "?sslmode=require");
    const reason = `127.0.0.1:${cluster().port}: it is read-only: a standby, or default_transaction_read_only is on (25006)`;
    expect(await failureOf(url)).toEqual({ code: "25006", message: reason });
    expect(await failureOf(url.replace("127.0.0.1", "127.0.0.1:1,127.0.0.1"))).toEqual({
      code: "NO_SERVER",
      message: `127.0.0.1:1: connection refused, or unknown host name (ERR_POSTGRES_CONNECTION_REFUSED); ${reason}`,
    });

    await cluster().run("ALTER ROLE tls RESET default_transaction_read_only");
    using connection = await connect(url.replace("127.0.0.1", "127.0.0.1:1,127.0.0.1"));
    expect(await setting(connection, "transaction_read_only")).toBe("off");
  });

  test("refuses a database that cannot keep every string", async () => {
    await cluster().run(
      "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    expect(await failureOf(at("postgres").replace(/postgres$/, "latin"))).toEqual({
      code: "UNSAFE",
      message: `127.0.0.1:${cluster().port}: its encoding is LATIN1, not UTF8: create a database with ENCODING 'UTF8' TEMPLATE template0`,
    });
  });

  test("speaks TLS as sslmode says", async () => {
    const root = `sslrootcert=${TLS}/localhost.crt`;
    for (const [mode, host] of [
      ["sslmode=require", "127.0.0.1"],
      [`sslmode=verify-ca&${root}`, "127.0.0.1"],
      [`sslmode=verify-ca&${root}`, "127.0.0.2"],
      // As for libpq, with certificates to trust it is `verify-ca`.
      [`sslmode=require&${root}`, "127.0.0.2"],
      [`sslmode=verify-full&${root}`, "localhost"],
    ] as const) {
      using connection = await connect(at("tls", `?${mode}`, host));
      const rows = await connection.query(
        "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
      );
      expect([...rows]).toEqual([{ ssl: true }]);
    }

    for (const [parameters, host, reason] of [
      // Its certificate is for localhost and 127.0.0.1.
      [
        `verify-full&${root}`,
        "127.0.0.2",
        "its certificate is for another host (ERR_TLS_CERT_ALTNAME_INVALID)",
      ],
      [
        "verify-full",
        "localhost",
        "its certificate is not trusted: set sslrootcert to the CA's PEM file",
      ],
      [
        "disable",
        "127.0.0.1",
        'it refuses the user: pg_hba.conf rejects connection for host "127.0.0.1", user "tls", database',
      ],
      [
        "verify-full&sslrootcert=/missing.crt",
        "127.0.0.1",
        `${FILES} names a missing file (ENOENT)`,
      ],
      [
        `verify-full&sslrootcert=${cluster().data}/empty.crt`,
        "127.0.0.1",
        `${FILES} names an empty file (ERR_INVALID_`,
      ],
      [
        `verify-full&sslrootcert=${ROOT}/package.json/ca.crt`,
        "127.0.0.1",
        `${FILES} names a missing file (ENOTDIR)`,
      ],
      ["verify-full&sslrootcert=/", "127.0.0.1", `${FILES} names a directory (EISDIR)`],
      [`verify-full&sslrootcert=${ROOT}/package.json`, "127.0.0.1", UNUSABLE],
    ] as const) {
      expect(await failureOf(at("tls", `?sslmode=${parameters}`, host))).toEqual(
        noServer(reason, host),
      );
    }
  });

  test("presents a client certificate to a server that asks for one", async () => {
    const own = (name: string, key = join(TLS, `${name}.key`)) =>
      `?sslmode=require&sslcert=${TLS}/${name}.crt&sslkey=${key}`;
    using connection = await connect(at("localhost", own("localhost")));
    const rows = await connection.query(
      "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
    );
    expect([...rows]).toEqual([{ client_dn: "/CN=localhost" }]);

    using directory = emptyDirectory();
    const encrypted = join(directory.path, "encrypted.key");
    const key = createPrivateKey(readFileSync(join(TLS, "localhost.key")));
    const pkcs8 = {
      format: "pem",
      type: "pkcs8",
      cipher: "aes-256-cbc",
      passphrase: "sesame",
    } as const;

    writeFileSync(encrypted, key.export(pkcs8));
    const mismatch = own("localhost", join(TLS, "renewed.key"));

    for (const [user, parameters, reason] of [
      [
        "localhost",
        "?sslmode=require",
        "it refuses the user: connection requires a valid client certificate (28000)",
      ],
      [
        "example.org",
        own("localhost"),
        'it refuses the user: certificate authentication failed for user "example.org" (28000)',
      ],
      ["localhost", own("localhost", encrypted), UNUSABLE],
      ["localhost", mismatch, UNUSABLE],
      // Nobody whom the server trusts has signed it.
      [
        "localhost",
        own("renewed"),
        "the TLS handshake failed: the server may not trust sslcert (EPROTO)",
      ],
    ] as const) {
      expect(await failureOf(at(user, parameters))).toEqual(noServer(reason));
    }
  });

  test.concurrent(
    "refuses a server that does not respond within the time that is set",
    async () => {
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
      const url = `postgres://plants@127.0.0.1:${silent.port}/plants?connect_timeout=1`;
      const { code, message } = await failureOf(url);

      // On a busy machine our own deadline is extended, and Bun's for connecting is first.
      expect([code, message.replace("ERR_POSTGRES_CONNECTION_TIMEOUT", "DEADLINE")]).toEqual([
        "NO_SERVER",
        `127.0.0.1:${silent.port}: it did not respond in time (DEADLINE)`,
      ]);
    },
  );

  test.concurrent("asks a server once that needs more than a second to refuse", async () => {
    using slow = startProxy(cluster().port, { delayMs: 600 });
    await cluster().run(
      "CREATE ROLE reading LOGIN",
      "ALTER ROLE reading SET default_transaction_read_only = on",
    );
    const url = `postgres://reading@127.0.0.1:${slow.port}/postgres?connect_timeout=60`;
    expect(await failureOf(url)).toMatchObject({ code: "25006" });
    expect(slow.connections()).toBe(1);
  });

  test.concurrent(
    "tries the next host after a second, however long the previous one takes",
    async () => {
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
      const hosts = `127.0.0.1:${silent.port},127.0.0.1:${silent.port},127.0.0.1`;
      using connection = await connect(at("postgres", "?connect_timeout=999", hosts));
      expect(connection.host.port).toBe(cluster().port);
    },
  );

  test.concurrent(
    "finds a host that was promoted while another one may still respond",
    async () => {
      using silent = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
      using standby = startProxy(cluster().port);
      await cluster().run(
        "CREATE ROLE promoted LOGIN",
        "ALTER ROLE promoted SET default_transaction_read_only = on",
      );

      const connecting = connect(
        `postgres://promoted@127.0.0.1:${silent.port},127.0.0.1:${standby.port}/postgres?connect_timeout=999`,
      );

      // A session keeps what it has at its start.
      while (standby.replyBytes() === 0) await Bun.sleep(1);
      await cluster().run("ALTER ROLE promoted RESET default_transaction_read_only");
      using connection = await connecting;
      expect(connection.host.port).toBe(standby.port);
    },
  );

  test.skipIf(skipsPooler()).each(["transaction", "session", "statement"])(
    "refuses a pooler, even one that hides that it drops the session's settings: pool_mode=%s",
    async (mode) => {
      using directory = emptyDirectory();
      // What a session would have set is there without it.
      await cluster().set("statement_timeout", "30s");

      for (const [ignored, reason] of [
        [
          "extra_float_digits",
          "it rejects session settings, as poolers do: connect to PostgreSQL directly (08P01)",
        ],
        [
          "plant_store.nonce,array_nulls,bytea_output,lock_timeout,options,row_security,statement_timeout,tcp_keepalives_idle,tcp_keepalives_interval,tcp_keepalives_count,tcp_user_timeout",
          "a pooler drops session settings: connect to PostgreSQL directly",
        ],
      ] as const) {
        await using pooler = await startPooler(directory.path, [
          `pool_mode=${mode}`,
          `ignore_startup_parameters=${ignored}`,
          "[databases]",
          `postgres = host=127.0.0.1 port=${cluster().port} user=postgres`,
        ]);
        const { message } = await failureOf(
          `postgres://postgres@127.0.0.1:${pooler.port}/postgres`,
        );
        expect(message).toBe(`127.0.0.1:${pooler.port}: ${reason}`);
      }

      await cluster().set("statement_timeout", "0");
    },
  );
});

/** Says so, for the test that skips itself. */
function skipsPooler(): boolean {
  if (process.getuid?.() !== 0) return skipped("a real pooler: it needs root");
  return Bun.which("pgbouncer") === null && missing("a real pooler: there is no pgbouncer");
}

/** Starts PgBouncer with a configuration of its own besides what each has. */
async function startPooler(directory: string, settings: readonly string[]) {
  const port = freePort();
  const file = join(directory, "pgbouncer.ini");
  chmodSync(directory, 0o755);

  const common = [
    "[pgbouncer]",
    "auth_type=any",
    "listen_addr=127.0.0.1",
    `listen_port=${port}`,
    "unix_socket_dir=",
  ];

  writeFileSync(file, [...common, ...settings].join("\n"));
  const child = Bun.spawn(
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "pgbouncer", file],
    {
      stdout: "ignore",
      stderr: "pipe",
    },
  );

  let log = "";
  for await (const chunk of child.stderr.pipeThrough(new TextDecoderStream())) {
    log += chunk;
    if (log.includes("process up")) break;
  }

  if (!log.includes("process up")) throw new Error(`PgBouncer did not start:\n${log}`);
  return {
    port,
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
    },
  };
}
