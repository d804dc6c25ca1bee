import { expect, test } from "bun:test";
import { PostgresFailure, unavailable } from "../../../src/database/postgres/errors.ts";

const WORDS: readonly (readonly [code: string, words: string])[] = [
  ["CERT_HAS_EXPIRED", "its certificate, or one above it, has expired: renew it"],
  ["CERT_NOT_YET_VALID", "its certificate, or one above it, is not valid yet: look at the clocks"],
  ["25P04", "a transaction_timeout ended the session: raise that of the role or the database"],
  ["57014", "the statement was cancelled, or took longer than its statement_timeout"],
  ["57P01", "the connection was ended by an operator, or by a shutdown"],
  ["53100", "its disk is full"],
  ["ERR_POSTGRES_CONNECTION_REFUSED", "nothing listens there, or no host has this name"],
];

test.each(WORDS)("PostgresFailure says in words what %s means", (code, words) => {
  expect(new PostgresFailure(code).message).toBe(`${words} (${code})`);
});

test("unavailable() does not call storage gone where another transaction deleted a row", () => {
  expect(unavailable(new PostgresFailure("ROW_GONE")).message).toBe(
    "storage has lost a row to another transaction; the plant may or may not be stored, send it again later",
  );
  expect(new PostgresFailure("ROW_GONE").message).toBe("another transaction deleted a plant meanwhile (ROW_GONE)");
});
