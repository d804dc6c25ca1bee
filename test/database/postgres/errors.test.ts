import { expect, test } from "bun:test";

import {
  PostgresFailure,
  remedyFor,
  toFailure,
  unavailable,
} from "../../../src/database/postgres/errors.ts";

const WORDS: readonly (readonly [code: string, words: string])[] = [
  ["CERT_HAS_EXPIRED", "its certificate, or one above it, has expired: renew it"],
  [
    "CERT_NOT_YET_VALID",
    "its certificate, or one above it, is not valid yet: check the clocks of both machines",
  ],
  ["25P04", "transaction_timeout ended the session: raise it for the role or the database"],
  ["57014", "the statement was cancelled, or took longer than its statement_timeout"],
  ["57P01", "an operator or a shutdown ended the connection"],
  ["53100", "its disk is full"],
  [
    "WRAPAROUND",
    "it has no transaction ids left: end old transactions, then VACUUM the oldest database",
  ],
  ["ERR_POSTGRES_CONNECTION_REFUSED", "connection refused, or unknown host name"],
];

test.each(WORDS)("PostgresFailure says in words what %s means", (code, words) => {
  expect(new PostgresFailure(code).message).toBe(`${words} (${code})`);
});

test.each([
  ["GetNewTransactionId", "WRAPAROUND", "refuse", "storage needs maintenance; "],
  ["GetNewMultiXactId", "WRAPAROUND", "refuse", "storage needs maintenance; "],
  ["index_form_tuple", "54000", "fault", "storage is gone; "],
] as const)("54000 from %s is %s: %s, and clients are told %s", (routine, code, remedy, reason) => {
  const error = new Bun.SQL.PostgresError("no", {
    code: "ERR_POSTGRES_SERVER_ERROR",
    errno: "54000",
    routine,
  });
  const failure = toFailure(error);
  expect(failure).toMatchObject({ code });
  expect(remedyFor(failure)).toBe(remedy);
  expect(unavailable(failure).message).toStartWith(reason);
});
