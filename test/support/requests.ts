import * as fc from "fast-check";

import { PATHS } from "../../src/http/paths.ts";
import { bodyBytes, bodyText } from "./json_text.ts";
import { mostly, oneOf, wordOf } from "./json_values.ts";
import { goodRequest } from "./load.ts";
import type { OracleOptions, WireRequest } from "./oracle.ts";

/**
 * Requests of every kind: most are good in all but one thing, or in all; `oracle.ts` says what has
 * to be the response.
 */
export function anyRequest({ token, maxBodyBytes }: OracleOptions): fc.Arbitrary<WireRequest> {
  const { path, method, authorization, contentType } = goodRequest(token);
  const request: fc.Arbitrary<WireRequest> = fc.record({
    path: mostly(path, fc.oneof(wordOf("/plants?access_token=x&id=1 /plants?"), wrongPath)),
    method: mostly(method, fc.constantFrom(...OTHER_METHODS), 30),
    authorization: mostly(authorization, credentials(token), 8),
    contentType: mostly<string | undefined>(contentType, otherMediaType, 8),
    contentEncoding: mostly<string | undefined>(undefined, wordOf("gzip identity br"), 30),
    body: bodyBytes,
  });

  return oneOf(
    [60, request],
    [1, requestAtLimit({ token, maxBodyBytes })],
    [1, fc.constant({ ...goodRequest(token), path: "/livez" })],
  );
}

/** Good requests but for the size of their body, which is some bytes below or above the limit. */
export function requestAtLimit({ token, maxBodyBytes }: OracleOptions): fc.Arbitrary<WireRequest> {
  const size = fc.integer({ min: maxBodyBytes - 5, max: maxBodyBytes + 5 });
  return fc
    .tuple(bodyText, fc.constantFrom(" ", "\n", "\t", "\r"), size)
    .map(([text, space, size]) => text + space.repeat(Math.max(0, size - Buffer.byteLength(text))))
    .map((body) => goodRequest(token, body));
}

/** Methods that `/plants` does not take: the oracle knows of its POST only. */
export const OTHER_METHODS = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"].filter(
  (method) => !(method in (PATHS["/plants"] ?? {})),
);

const wrongPath = wordOf(
  "/plant /plantss /plants/ /Plants /plants/1/2 /__proto__ // //plants //x/plants",
);

/** RFC 6750, section 2.1; RFC 9110, section 11.4. */
function credentials(token: string): fc.Arbitrary<string[]> {
  const good = fc
    .tuple(cased("bearer"), fc.constantFrom(" ", "  ", "     "))
    .map(([scheme, space]) => scheme + space + token);

  const around = fc.oneof(
    wordOf(`Bearer Bearer, Basic bearer\t  = ==== é " x ${token} Bearer${token}`),
    fc.constantFrom(
      `Bearer ${token},`,
      `Bearer ${token}x`,
      `Bearer "${token}"`,
      `Bearer ${token.toUpperCase()}`,
    ),
  );

  const pieces = fc
    .array(around, { minLength: 1, maxLength: 4 })
    .map((parts) => parts.join(" ").trim());

  // Not empty: no standard says whether that means none or bad ones.
  const bad = fc.oneof(headerValue(), pieces).filter((value) => value !== "");

  return oneOf<string[]>(
    [2, good.map((value) => [value])],
    [1, bad.map((value) => [value])],
    [
      1,
      fc.constantFrom(
        [],
        [`Bearer ${token}`, `Bearer ${token}`],
        ["Basic eDp5", `Bearer ${token}`],
      ),
    ],
  );
}

/** A media type that is well formed, in any spelling; at most one charset. */
const mediaType: fc.Arbitrary<string> = fc
  .tuple(
    oneOf(
      [4, cased("application/json")],
      [
        1,
        wordOf(
          "text/plain text/json application/xml application/jsonx application/json-patch+json */*",
        ),
      ],
      [1, wordOf("application/x-www-form-urlencoded multipart/form-data")],
    ),
    fc.uniqueArray(
      fc.tuple(fc.constantFrom(";", "; ", " ; ", ";\t"), fc.oneof(charset(), otherParameter())),
      {
        maxLength: 3,
        selector: ([, [name]]) => name.toLowerCase(),
      },
    ),
  )
  .map(
    ([type, parameters]) =>
      type + parameters.map(([separator, pair]) => separator + pair.join("=")).join(""),
  );

const otherMediaType = oneOf<string | undefined>(
  [4, mediaType],
  [1, headerValue()],
  [1, fc.constant(undefined)],
);

function charset(): fc.Arbitrary<[string, string]> {
  const values = wordOf('utf-16 "latin1" utf8 x');
  return fc.tuple(
    cased("charset"),
    fc.oneof(cased("utf-8"), cased("utf-8"), cased('"utf-8"'), values),
  );
}

function otherParameter(): fc.Arbitrary<[string, string]> {
  return fc.tuple(
    wordOf("x profile q xcharset boundary version"),
    wordOf('1 "a;charset=x" "\\"" utf-16'),
  );
}

function cased(text: string): fc.Arbitrary<string> {
  return fc.mixedCase(fc.constant(text));
}

/** What HTTP accepts as a header's value, and is neither a media type nor credentials. */
function headerValue(): fc.Arbitrary<string> {
  return fc
    .stringMatching(/^[\t\x20-\x7e\x80-\xff]{0,30}$/)
    .map((value) => value.trim())
    .filter((value) => !/^(application\/json|bearer )/i.test(value));
}
