import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";

import { loggableSettings, parseConfig } from "../../src/settings/settings.ts";
import { emptyDirectory } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

test("a URL of Citus is one of PostgreSQL's with another scheme", () => {
  const url = "citus://me:secret@127.0.0.1:1/plants?sslmode=verify-full&sslrootcert=/ca.pem";
  expect(loggableSettings(parseConfig({ DATABASE_URL: url }))["database"]).toEqual({
    adapter: "citus",
    hosts: ["127.0.0.1:1"],
    database: "plants",
    username: "me",
    sslmode: "verify-full",
  });
  expect(() => parseConfig({ DATABASE_URL: "citus://me:secret@db/plants" })).toThrow(
    /^Cannot use DATABASE_URL="citus:\/\/…": a host on a network needs sslmode: [^\n]*$/,
  );
});

test("loggableSettings() shows a URL without its password", () => {
  const url = "postgres://me:secret@127.0.0.1:1/plants?sslmode=disable";
  expect(loggableSettings(parseConfig({ DATABASE_URL: url }))["database"]).toEqual({
    adapter: "postgres",
    hosts: ["127.0.0.1:1"],
    database: "plants",
    username: "me",
    sslmode: "disable",
  });
});

test("a URL in a file is refused in one line that does not quote it", async () => {
  using directory = emptyDirectory();
  await Bun.write(directory.at("url"), "postgres://me:sesame@db.example.org/plants\n");
  const run = await runCommand(["export"], { DATABASE_URL_FILE: directory.at("url") });
  const says =
    "a host on a network needs sslmode: write ?sslmode=verify-full, or ?sslmode=disable to send all in plaintext";
  expect(run).toEqual({
    exitCode: 2,
    stdout: "",
    stderr: `Cannot use the URL in DATABASE_URL_FILE "postgres://…": ${says}\n`,
  });
  expect(readdirSync(directory.path)).toEqual(["url"]);
});
