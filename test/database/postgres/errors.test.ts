import { expect, test } from "bun:test";

import {
  consequencesOf,
  PostgresFailure,
  rejectionOf,
  toFailure,
} from "../../../src/database/postgres/errors.ts";
import { PlantStoreError } from "../../../src/errors.ts";

const WORDS: readonly (readonly [code: string, words: string])[] = [
  ["25P04", "transaction_timeout ended the session: raise it for the role or the database"],
  ["57014", "the statement was cancelled, or took longer than its statement_timeout"],
  ["57P01", "a shutdown or pg_terminate_backend() ended the connection"],
  ["53100", "its disk is full"],
  [
    "WRAPAROUND",
    "it has no transaction ids left: end old transactions, then VACUUM the oldest database",
  ],
  ["EACCES", "sslrootcert, sslcert or sslkey names a file that this user may not read"],
];

test.each(WORDS)("PostgresFailure says in words what %s means", (code, words) => {
  expect(new PostgresFailure(code).message).toBe(`${words} (${code})`);
});

const SERVER_CLOSED = new PostgresFailure("57P01");
const BUG = new TypeError("no");

test.each([
  ["a deadlock keeps the connection", "40P01", "keep", "repeat", false],
  ["a lock keeps the connection", "55P03", "keep", "repeat", false],
  ["a cancelled statement keeps the connection", "57014", "keep", "repeat", false],
  ["a shutdown closes the connection", "57P01", "close", "repeat", false],
  ["a read-only server closes the connection", "25006", "close", "repeat", false],
  ["too many connections close the connection", "53300", "close", "repeat", false],
  ["no server closes the connection", "NO_SERVER", "close", "repeat", false],
  ["a reset closes the connection", "ERR_POSTGRES_CONNECTION_CLOSED", "close", "repeat", false],
  ["a full disk is refused", "53100", "close", "refuse", false],
  ["a missed deadline is refused", "DEADLINE", "close", "refuse", false],
  ["an unsafe setting closes all", "UNSAFE", "close all", "refuse", true],
  ["tables that Citus has distributed since close all", "0A000", "close all", "refuse", true],
  ["data that is refused keeps the connection", "23505", "keep", "refuse data", true],
  ["an index that is being built keeps the connection", "REINDEX", "keep", "repeat", false],
  ["what is not known is a bug", "42601", "close", "bug", true],
] as const)("%s: %s", (_what, code, connection, work, isLasting) => {
  const failure = new PostgresFailure(code);
  expect(consequencesOf(failure)).toEqual({ connection, work, isLasting });
});

test("the caller of work gets storage_unavailable with the failure as its cause, and a bug as it is", () => {
  expect(rejectionOf(SERVER_CLOSED)).toMatchObject({
    code: "storage_unavailable",
    cause: SERVER_CLOSED,
  });
  expect(rejectionOf(BUG)).toBe(BUG);
});

test.each([
  ["GetNewTransactionId", "WRAPAROUND", "storage needs maintenance; "],
  ["GetNewMultiXactId", "WRAPAROUND", "storage needs maintenance; "],
  ["index_form_tuple", "54000", new PlantStoreError("internal").message],
] as const)("54000 from %s is %s, and rejects with: %s", (routine, code, message) => {
  const error = new Bun.SQL.PostgresError("no", {
    code: "ERR_POSTGRES_SERVER_ERROR",
    errno: "54000",
    routine,
  });
  const failure = toFailure(error);
  expect(failure).toMatchObject({ code });
  expect((rejectionOf(failure) as Error).message).toStartWith(message);
});
