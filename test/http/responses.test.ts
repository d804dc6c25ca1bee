import { expect, test } from "bun:test";

import { type ErrorCode, ERRORS, PlantStoreError, statusOf } from "../../src/errors.ts";
import { testApp } from "../support/app.ts";

/** The headers of each cause beyond those of every error. A cause that is not here is a type error. */
const HEADERS: Readonly<Record<ErrorCode, Readonly<Record<string, string>>>> = {
  malformed_json: {},
  invalid_plant: {},
  malformed_request: { connection: "close" },
  missing_credentials: { "www-authenticate": 'Bearer realm="plant-store"' },
  invalid_credentials: {
    "www-authenticate": 'Bearer realm="plant-store", error="invalid_token"',
  },
  insufficient_scope: {
    "www-authenticate": 'Bearer realm="plant-store", error="insufficient_scope"',
  },
  // Without a body that is announced, what follows may be one.
  unknown_path: { connection: "close" },
  method_not_allowed: { connection: "close", allow: "GET, HEAD" },
  id_taken: {},
  body_too_large: { connection: "close" },
  unsupported_media_type: {},
  internal: {},
  queue_full: { "retry-after": "1" },
  storage_unavailable: { "retry-after": "1" },
  shutting_down: { "retry-after": "1", connection: "close" },
};

test.each(Object.entries(HEADERS) as [ErrorCode, Readonly<Record<string, string>>][])(
  "the response to %s has its status, its number and its own headers: a Retry-After only if it is to be retried",
  async (code, own) => {
    const cause = new PlantStoreError(code);
    const app = testApp({
      ready: () => Promise.reject(cause),
      observer: { onError() {}, onResponse() {} },
    });
    const response = await app.fetch(new Request("http://localhost:3000/readyz"));

    const { error, message } = ERRORS[code];
    expect([response.status, await response.json()]).toEqual([statusOf(code), { error, message }]);
    expect(Object.fromEntries(response.headers)).toEqual({
      "content-type": "application/json",
      "x-content-type-options": "nosniff",
      "cache-control": "no-store",
      "x-request-id": expect.any(String),
      ...own,
    });
  },
);
