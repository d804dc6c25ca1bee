import { expect, test } from "bun:test";

import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";

const USER = "postgres://plants:p%40ss%2Fword@";

test("parsePostgresUrl() reads hosts, database, user and password", () => {
  const { password, ...url } = parsePostgresUrl(
    `${USER}db1,db2:5433,[2001:db8::1]:5434/green%20house?sslmode=verify-full`,
  );

  expect(url).toEqual({
    hosts: [
      { host: "db1", port: 5432 },
      { host: "db2", port: 5433 },
      { host: "2001:db8::1", port: 5434 },
    ],
    database: "green house",
    username: "plants",
    sslmode: "verify-full",
    sslrootcert: undefined,
    sslcert: undefined,
    sslkey: undefined,
    applicationName: "plant-store",
    connectTimeoutMs: 2_000,
  });

  expect(password()).toBe("p@ss/word");
});

test("parsePostgresUrl() reads every parameter that it knows", () => {
  const parameters =
    "sslmode=verify-ca&sslrootcert=/ca.pem&sslcert=/me.pem&sslkey=/me.key&connect_timeout=7";
  const url = parsePostgresUrl(`${USER}db/plants?${parameters}`);

  expect(url).toMatchObject({
    sslmode: "verify-ca",
    sslrootcert: "/ca.pem",
    sslcert: "/me.pem",
    sslkey: "/me.key",
    connectTimeoutMs: 7_000,
  });
});

test("parsePostgresUrl() requires no sslmode if there is no network in between", () => {
  for (const host of ["localhost", "127.0.0.1", "[::1]:5433", "%2Fvar%2Frun%2Fpostgresql"]) {
    expect(parsePostgresUrl(`postgresql://plants@${host}/plants`).sslmode).toBeUndefined();
  }
});

test("parsePostgresUrl() takes a socket's directory from the parameter host, as Google writes it", () => {
  const directory = "/cloudsql/garden:europe-west1:plants";
  for (const host of ["", "localhost"]) {
    expect(parsePostgresUrl(`${USER}${host}/plants?host=${directory}`).hosts).toEqual([
      { host: directory, port: 5432 },
    ]);
  }
});

const PARAMETERS =
  "there are host, sslmode, sslrootcert, sslcert, sslkey, connect_timeout, application_name";

/** URLs by what is said of them. */
const REFUSED: Readonly<Record<string, readonly string[]>> = {
  "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE": [
    "postgres://db/plants",
    `${USER}db`,
    "sesame",
  ],
  "expected citus://USER:PASSWORD@HOST:PORT/DATABASE": ["citus://db/plants"],
  "expected hosts as HOST or HOST:PORT, separated by commas":
    "db:0 db1,,db2 localhost%3F localhost%23 a%20b localhost%2F 127.0.0.1%40db [::1%3F] [::1%5D] %5B::1%5D"
      .split(" ")
      .concat("")
      .map((hosts) => `${USER}${hosts}/plants`),
  "expected no control character, such as %00": [
    "postgres://pl%00ants@localhost/plants",
    "postgres://plants:%0A@localhost/plants",
    `${USER}localhost/pl%00ants`,
    `${USER}localhost%00/plants`,
    `${USER}localhost/plants?sslmode=require&sslrootcert=%00`,
  ],
  "expected % to be followed by two hexadecimal digits; a % itself is %25": [
    `${USER}127.0.0.1/pl%ants`,
  ],
  "a host on a network needs sslmode: write ?sslmode=verify-full, or ?sslmode=disable to send all in plaintext":
    [`${USER}db/plants`, `${USER}localhost,db/plants`],
  "expected sslmode to be disable, require, verify-ca, verify-full": [
    `${USER}db/plants?sslmode=prefer`,
  ],
  "sslrootcert and sslcert need sslmode=require, verify-ca or verify-full": [
    `${USER}db/plants?sslmode=disable&sslrootcert=/ca.pem`,
  ],
  "expected sslcert and sslkey together": [`${USER}db/plants?sslmode=require&sslkey=/key`],
  [`the parameter "search_path" is not known; ${PARAMETERS}`]: [
    `${USER}db/plants?sslmode=require&search_path=x`,
  ],
  [`a parameter is not known; ${PARAMETERS}; special characters of the password must be percent-encoded, such as ? as %3F`]:
    [
      "postgres://plants:p@ss/word?word@localhost/plants",
      "postgres://plants:p@ss/word?word=1@localhost/plants",
      ...["\u001b[31mword", "a\nb=1", "x".repeat(41)].map(
        (query) => `${USER}localhost/plants?${query}`,
      ),
    ],
  "expected the parameter host to be the directory of a Unix socket, without another host; write a network host as //HOST/DATABASE":
    [`${USER}/plants?host=db`, `${USER}db/plants?host=/cloudsql/plants`, `${USER}/plants?host=`],
  'expected the parameter "sslmode" once': [`${USER}db/plants?sslmode=verify-full&sslmode=disable`],
  "expected connect_timeout to be 1 to 999 seconds": [`${USER}127.0.0.1/plants?connect_timeout=0`],
};

test.each(
  Object.entries(REFUSED).flatMap(([message, urls]) => urls.map((url) => [url, message] as const)),
)("parsePostgresUrl() refuses %s, and says why without the password", (url, message) => {
  expect(() => parsePostgresUrl(url)).toThrow(new RangeError(message));
  expect(message).not.toContain("p%40ss");
});
