import { METRICS_TOKEN } from "../runtimes/app.ts";
import {
  EXACT_IDS,
  MALFORMED_CREDENTIALS,
  NOT_IDS,
  NOT_JSON,
  OTHER_SCHEMES,
} from "../support/cases.ts";
import { TOKEN } from "../support/client.ts";
import { goodRequest, wireBytes } from "../support/load.ts";
import type { ModuleRuntime } from "../support/module_runtimes.ts";
import type { WireRequest } from "../support/oracle.ts";
import { fern, ivy, membersOf, membersWith, OPTIONAL_TEXT, TEXT } from "../support/plants.ts";
import { OTHER_METHODS } from "../support/requests.ts";

/** One request on a connection of its own, and its response. */
export interface WireCase {
  readonly what: string;
  /** A request that goes before it on its connection, and gets 200. @default none */
  readonly before?: FramedRequest;
  readonly bytes: Buffer;
  /** What the bytes are, if they are a request that any client could send. */
  readonly request?: FramedRequest;
  readonly verdict: Verdict;
  /** What a runtime forces, and the README names under "What is not promised". */
  readonly elsewhere?: Partial<Record<ModuleRuntime["kind"], Verdict>>;
  /** Whether it needs the signals and the names of `test/runtimes/app.ts`. @default false */
  readonly isForTestApp?: boolean;
}

/** Status and error number ("200", "413/4131"); for a HEAD the status alone; or {@linkcode REFUSED}. */
type Verdict = string;

/**
 * By the runtime's own parser: a 4xx or 505 without a body, or the end of the connection, as it
 * likes.
 */
export const REFUSED: Verdict = "refused";

/** A request, and how it is written down. */
interface FramedRequest extends WireRequest {
  /** @default "localhost" */
  readonly host?: string;
  /** The size of the chunks that its body comes in. @default it has a Content-Length */
  readonly chunkSize?: number;
}

/** What a case has that is not as in a good request. */
type Change = Partial<Omit<FramedRequest, "body">> & {
  readonly body?: string | Uint8Array<ArrayBuffer>;
};

/** The members of plants beside their id. */
const FERN = membersOf(fern());
const IVY = membersOf(ivy({ [OPTIONAL_TEXT]: "Ivy" }));

/** Ids that no other case has. */
let lastId = 1_000_000;

function plant(members = "", text = '"Fern"'): string {
  return `{"id": ${++lastId}, ${membersWith(text)}${members}}`;
}

function requestOf({ body = plant(), ...change }: Change = {}): FramedRequest {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  return { ...goodRequest(TOKEN), ...change, body: bytes };
}

function change(
  what: string,
  change: Change,
  verdict: Verdict,
  more: Partial<WireCase> = {},
): WireCase {
  const request = requestOf(change);
  const { host = "localhost", chunkSize } = request;
  const bytes = wireBytes(request, {
    host,
    chunkSizes: chunkSize === undefined ? [] : [chunkSize],
  });
  return { what, request, bytes, verdict, ...more };
}

/** A request with lines of its own in its head, before a blank line. */
function raw(
  what: string,
  lines: readonly string[],
  body: string,
  verdict: Verdict,
  more: Partial<WireCase> = {},
) {
  return { what, bytes: Buffer.from([...lines, "", body].join("\r\n")), verdict, ...more };
}

const POST = ["POST /plants HTTP/1.1", "Host: localhost"];
const AUTHORIZATION = `Authorization: Bearer ${TOKEN}`;
const TYPE = "Content-Type: application/json";
const GOOD = [...POST, AUTHORIZATION, TYPE];

/** Strings that are kept exactly. */
const STORABLE_STRINGS: readonly (readonly [what: string, text: string])[] = [
  ["nothing", ""],
  ["a space", " "],
  ["space around it", "  Fern\t\n"],
  ["quotes and backslashes", `'"\\\``],
  ["SQL", "'); DROP TABLE plants; --"],
  ["HTML", "<script>alert(1)</script>&amp;"],
  ["a control character", "\u0001\u001F\u007F\u0085"],
  ["line separators", "\u2028\u2029"],
  ["a byte order mark", "\uFEFFFern\uFEFF"],
  ["the replacement character", "\uFFFD"],
  ["noncharacters", "\uFFFE\uFFFF\u{1FFFF}"],
  ["the last code point", "\u{10FFFF}"],
  ["an emoji of several", "👩🏽‍🌾"],
  ["text from right to left", "‏نخلة‎"],
  ["a composed character", "\u00E9"],
  ["a decomposed character", "e\u0301"],
  ["a surrogate pair", "\uD83C\uDF31"],
  ["much text", "🌱".repeat(2_000)],
  ["the name of a prototype", "__proto__"],
];

/** Values that are not a text, as JSON. */
const UNSTORABLE_STRINGS: readonly (readonly [what: string, json: string])[] = [
  ["U+0000", String.raw`"\u0000"`],
  ["U+0000 inside", String.raw`"Fe\u0000rn"`],
  ["U+0000 at its end", String.raw`"Fern\u0000"`],
  ["a high surrogate alone", String.raw`"\ud83c"`],
  ["a low surrogate alone", String.raw`"\uDF31"`],
  ["surrogates in the wrong order", String.raw`"\udf31\ud83c"`],
  ["a high surrogate before a pair", String.raw`"\ud83c\ud83c\udf31"`],
  ["a lone surrogate after text", '"Fern 🌱 \\ud800"'],
  ["null", "null"],
  ["a number", "1"],
  ["true", "true"],
  ["an array", '["Fern"]'],
  ["an object", '{"name": "Fern"}'],
];

/** Values of Content-Type that say JSON in UTF-8. */
const JSON_MEDIA_TYPES: readonly string[] = [
  "application/json",
  "APPLICATION/JSON",
  "Application/Json",
  "application/json;charset=utf-8",
  "application/json; charset=UTF-8",
  'application/json; charset="utf-8"',
  'application/json; charset="Utf-8"',
  "application/json ; CHARSET=utf-8",
  "application/json;\tcharset=utf-8",
  "application/json;",
  "application/json; charset=utf-8;",
  "application/json; version=1",
  'application/json; version=1; charset=utf-8; profile="https://x.example/y"',
  'application/json; x="a; charset=latin1"',
  'application/json; x="\\"; charset=latin1"',
  "application/json; __proto__=x; constructor=y",
];

/** Values of Content-Type that say something else. */
const OTHER_MEDIA_TYPES: readonly (readonly [what: string, contentType: string | undefined])[] = [
  ["none", undefined],
  ["an empty one", ""],
  ["text/plain", "text/plain"],
  ["text/json", "text/json"],
  ["a form", "application/x-www-form-urlencoded"],
  ["multipart", "multipart/form-data; boundary=x"],
  ["JSON Patch", "application/json-patch+json"],
  ["a +json type", "application/problem+json"],
  ["a longer subtype", "application/jsonx"],
  ["a longer path", "application/json/x"],
  ["the subtype alone", "json"],
  ["a range", "application/*"],
  ["two types", "application/json, application/json"],
  ["two types, the first with parameters", "application/json; q=1, text/plain"],
  ["a space before the slash", "application /json"],
  ["a parameter without a semicolon", "application/json charset=utf-8"],
  ["another charset", "application/json; charset=iso-8859-1"],
  ["UTF-16", "application/json; charset=utf-16"],
  ["another charset, quoted", 'application/json; charset="utf-16"'],
  ["another charset, in upper case", "APPLICATION/JSON; CHARSET=UTF-16"],
  ["another charset after a quoted parameter", 'application/json; x="a;b"; charset=utf-16'],
  ["a charset that only looks like UTF-8", "application/json; charset=utf8"],
  ["an empty charset", 'application/json; charset=""'],
];

/** Bytes that are not UTF-8, one for each character. */
const NOT_UTF8: readonly (readonly [what: string, bytes: string])[] = [
  ["a byte that is never UTF-8", "\xFF"],
  ["a continuation byte alone", "\x80"],
  ["a character cut short", "\xE2\x82"],
  ["an overlong NUL", "\xC0\x80"],
  ["an overlong slash", "\xE0\x80\xAF"],
  ["a surrogate", "\xED\xA0\x80"],
  ["a surrogate pair (CESU-8)", "\xED\xA0\xBC\xED\xBC\xB1"],
  ["a code point past U+10FFFF", "\xF4\x90\x80\x80"],
  ["Latin-1", "\xFC"],
];

/** The most bytes that a body may have, by default. */
const LIMIT = 65_536;

/** Node's parser refuses it. */
const NOT_ON_NODE: Partial<WireCase> = { elsewhere: { node: REFUSED } };

const FOR_TEST_APP: Partial<WireCase> = { isForTestApp: true };

/** One flaw for each check, in the order of the checks. */
const FLAWS: readonly (readonly [check: string, verdict: Verdict, flaw: Change])[] = [
  ["path", "404/4041", { path: "/nowhere" }],
  ["method", "405/4051", { method: "PUT" }],
  ["credentials", "401/4012", { authorization: ["Bearer unknown"] }],
  ["scope", "403/4031", { authorization: [`Bearer ${METRICS_TOKEN}`] }],
  ["media type", "415/4151", { contentType: "text/plain" }],
  ["size", "413/4131", { body: "{".padEnd(LIMIT + 1) }],
  ["JSON", "400/4001", { body: "{not json" }],
  ["shape", "400/4002", { body: '{"id": "1"}' }],
];

/** Every row of the table of responses that needs one request only, and what is on its edges. */
export const WIRE_CASES: Readonly<Record<string, readonly WireCase[]>> = {
  "the order of checks": [
    raw(
      "a bad Host, and an unknown path",
      ["PUT /nowhere HTTP/1.1", "Host: a/b"],
      "\r\n",
      "400/4003",
    ),
    ...FLAWS.map(([check, verdict], index) => {
      // The first flaw of a part of the request counts: it hides those of later checks.
      const flaws = FLAWS.slice(index).map(([, , flaw]) => flaw);
      const all: Change = Object.assign({}, ...flaws.toReversed());
      return change(`a wrong ${check}, and all that is checked later`, all, verdict, FOR_TEST_APP);
    }),
  ],

  "unknown paths": [
    ...[
      "/plants/",
      "//plants",
      "/PLANTS",
      "/plants/1/2",
      "/plants;x",
      "/plants%2F",
      "/plants%",
      "/plant",
      "/v1/plants",
      "/livez/",
      "/__proto__",
      "/%",
      "/*",
      "//x/plants",
      "/\\plants",
    ].flatMap((path) =>
      ["GET", "POST"].map((method) =>
        change(`${method} ${path} is unknown`, { method, path, authorization: [] }, "404/4041"),
      ),
    ),
    ...["/", "/swagger", "/swagger/json"].map((path) =>
      change(
        `GET ${path} is unknown without the documentation`,
        { method: "GET", path },
        "404/4041",
        FOR_TEST_APP,
      ),
    ),
  ],

  methods: [
    ...[...OTHER_METHODS, "QUERY", "PROPFIND", "TRACE"].map((method) =>
      change(`${method} /plants is not allowed`, { method, authorization: [] }, "405/4051"),
    ),
    ...["POST", "PUT", "DELETE", "OPTIONS"].map((method) =>
      change(
        `${method} /livez is not allowed`,
        { method, path: "/livez", authorization: [] },
        "405/4051",
      ),
    ),
    ...(OTHER_METHODS.includes("GET") ? ["HEAD"] : []).map((method) =>
      change(`${method} /plants is not allowed`, { method, authorization: [], body: "" }, "405"),
    ),
    change("a method that nobody knows", { method: "FOO", authorization: [] }, REFUSED, {
      elsewhere: { deno: "405/4051" },
    }),
  ],

  "health checks": ["/livez", "/readyz", "http://other/livez?x"].flatMap((path) =>
    ["GET", "HEAD"].map((method) =>
      change(`${method} ${path} is public`, { method, path, body: "" }, "200"),
    ),
  ),

  // What a path is after `.` and `..` are resolved, which Deno does not do.
  "paths with dots": ["/x/../plants", "/%2e/plants", "/./plants"].map((path) =>
    change(
      `PUT ${path} is what the runtime makes of it`,
      { method: "PUT", path, body: "" },
      "405/4051",
      {
        elsewhere: { deno: "404/4041" },
      },
    ),
  ),

  queries: [
    ["an empty one", "?"],
    ["another plant", "?id=2&name=Ivy"],
    ["a bad escape", "?%"],
    ["bad UTF-8", "?%E0%A4%A=%zz"],
    ["a prototype", "?__proto__[x]=1&constructor=1"],
    ["1,500 parameters", `?${"a=1&".repeat(1_500)}`],
  ].map(([what, query]) =>
    change(`a query is ignored: ${what}`, { path: `/plants${query}` }, "200"),
  ),

  credentials: [
    ...[
      ["as RFC 6750 writes them", `Bearer ${TOKEN}`],
      ["with the scheme in lower case", `bearer ${TOKEN}`],
      ["with the scheme in upper case", `BEARER ${TOKEN}`],
      ["with the scheme in mixed case", `bEaReR ${TOKEN}`],
      ["with more than one space", `Bearer    ${TOKEN}`],
      ["with space before the value, which is not part of it", `  Bearer ${TOKEN}`],
    ].map(([what, value = ""]) => change(`credentials ${what}`, { authorization: [value] }, "200")),
    change(
      "credentials with space after the value, which is not part of it",
      { authorization: [`Bearer ${TOKEN} `] },
      "200",
    ),
    change("no credentials", { authorization: [] }, "401/4011"),
    change(
      "no credentials, and a body that is nothing",
      { authorization: [], body: "{not json" },
      "401/4011",
    ),
    ...["access_token=", "authorization=Bearer%20", "token=", "bearer="]
      .map((parameter) => `/plants?${parameter}${TOKEN}`)
      .flatMap((path) => [
        change(`a good token in ${path} alone`, { path, authorization: [] }, "401/4011"),
        change(
          `a good token in ${path} beside Basic`,
          { path, authorization: ["Basic eDp5"] },
          "401/4011",
        ),
      ]),
    change(
      "an unknown token in the query beside a good one",
      { path: "/plants?access_token=unknown" },
      "200",
    ),
    change(
      "a token in the body",
      { authorization: [], body: plant(`, "access_token": "${TOKEN}"`) },
      "401/4011",
    ),
    ...["X-Authorization", "Proxy-Authorization", "Access-Token", "Cookie"].map((name) =>
      raw(
        `a token in ${name}`,
        [...POST, `${name}: Bearer ${TOKEN}`, TYPE, "Content-Length: 2"],
        "{}",
        "401/4011",
      ),
    ),
    change("an unknown token", { authorization: ["Bearer unknown"] }, "401/4012"),
    change(
      "a token of 8,000 characters",
      { authorization: [`Bearer ${"a".repeat(8_000)}`] },
      "401/4012",
    ),
    change(
      "a token without the scope",
      { authorization: [`Bearer ${METRICS_TOKEN}`] },
      "403/4031",
      FOR_TEST_APP,
    ),
    ...MALFORMED_CREDENTIALS.map(([what, value]) =>
      change(`credentials with ${what}`, { authorization: [value] }, "401/4012"),
    ),
    ...OTHER_SCHEMES.map(([what, value]) =>
      change(`credentials with ${what}`, { authorization: [value] }, "401/4011"),
    ),
    ...[
      [`Bearer ${TOKEN}`, `Bearer ${TOKEN}`],
      [`Bearer ${TOKEN}`, "Basic eDp5"],
      [`Bearer ${TOKEN}`, ""],
    ].map((authorization) =>
      change(`two of them: ${JSON.stringify(authorization)}`, { authorization }, "401/4012"),
    ),
    change(
      "those of another scheme before good ones",
      { authorization: ["Basic eDp5", `Bearer ${TOKEN}`] },
      "401/4011",
    ),
    change(
      "an empty one before a good one",
      { authorization: ["", `Bearer ${TOKEN}`] },
      "401/4011",
      {
        elsewhere: { deno: "200" },
      },
    ),
  ],

  "media types": [
    ...JSON_MEDIA_TYPES.map((contentType) =>
      change(`a body of ${contentType}`, { contentType }, "200"),
    ),
    ...OTHER_MEDIA_TYPES.map(([what, contentType]) =>
      change(`a media type that is ${what}`, { contentType }, "415/4151"),
    ),
    ...["gzip", "br", "identity", "x"].map((contentEncoding) =>
      change(`Content-Encoding: ${contentEncoding}`, { contentEncoding }, "415/4151"),
    ),
  ],

  sizes: [
    change("a body of exactly the limit", { body: plant().padEnd(LIMIT) }, "200"),
    change(
      "a chunked body of exactly the limit",
      { body: plant().padEnd(LIMIT), chunkSize: 7_000 },
      "200",
    ),
    change("a body of a byte more than the limit", { body: plant().padEnd(LIMIT + 1) }, "413/4131"),
    change(
      "a body over the limit in bytes, not in characters",
      { body: plant("", `"${"ü".repeat(LIMIT / 2)}"`) },
      "413/4131",
    ),
    change(
      "a chunked body of a byte more",
      { body: plant().padEnd(LIMIT + 1), chunkSize: 7_000 },
      "413/4131",
    ),
    change(
      "a chunked body far over the limit",
      { body: plant().padEnd(1e6), chunkSize: 50_000 },
      "413/4131",
    ),
    // A reader that leaves the body of 200,000 bytes cancelled ends the process on Node 22.
    ...[1, 10, 100, 500, 1_000, 2_000].map((chunkSize) =>
      change(
        `a body over the limit in chunks of ${chunkSize}`,
        { body: plant().padEnd(chunkSize === 1 ? 70_000 : 200_000), chunkSize },
        "413/4131",
      ),
    ),
    change("chunks of one byte", { body: plant().padEnd(200), chunkSize: 1 }, "200"),
    change("ten thousand of them", { body: plant().padEnd(10_000), chunkSize: 1 }, "413/4131"),
    change("no body", { body: "" }, "400/4001"),
    change("a chunked body of nothing", { body: "", chunkSize: 1 }, "400/4001"),
    raw("no body and no length", GOOD, "", "400/4001"),
  ],

  // Where client and server may not agree on the end of a request (RFC 9112, section 6.3).
  framing: [
    // Node refuses the bytes that follow before the app has its response to those before.
    raw(
      "a Content-Length that is too short",
      [...GOOD, "Content-Length: 10"],
      plant(),
      "400/4001",
      NOT_ON_NODE,
    ),
    // A recipient may take equal ones for one (RFC 9110, section 8.6).
    ...(
      [
        ["within the limit", plant().length + 5, "200"],
        ["over the limit", 500_000, "413/4131"],
      ] as const
    ).map(([what, length, verdict]) => {
      const lengths = Array(2).fill(`Content-Length: ${length}`);
      return raw(
        `two equal Content-Lengths ${what}`,
        [...GOOD, ...lengths],
        plant().padEnd(length),
        verdict,
        NOT_ON_NODE,
      );
    }),
    // Five bytes that are the last chunk, too: whoever takes one of these has a body for the app.
    ...[
      ["two Content-Lengths", "Content-Length: 5\r\nContent-Length: 6"],
      ["a Content-Length below zero", "Content-Length: -1"],
      ["a Content-Length that is none", "Content-Length: x"],
      ["an empty Content-Length", "Content-Length:"],
      ["a Content-Length of 1e1", "Content-Length: 1e1"],
      ["a Content-Length past 2^64", "Content-Length: 18446744073709551617"],
      ["a Content-Length beside chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked"],
      ["another Transfer-Encoding", "Transfer-Encoding: x"],
      ["chunks, twice", "Transfer-Encoding: chunked, chunked"],
      ["a space before the colon", "Content-Length : 5"],
      ["a folded header", "X: y\r\n z"],
      ["a header without a name", ": x"],
      ["a NUL in a header", "X: \0"],
      ["a bare CR in a header", "X: a\rb"],
      ["a header of 100,000 bytes", `X: ${"x".repeat(100_000)}`],
    ].map(([what = "", header = ""]) => raw(what, [...GOOD, header], "0\r\n\r\n", REFUSED)),
    // Bun's parser knows no trailers: it would answer them with a 400 of its own.
    ...(
      [
        [GOOD, "400/4002"],
        [[...POST, TYPE], "401/4011"],
      ] as const
    ).map(([lines, read]) =>
      raw(
        `a Trailer, which others read: ${read}`,
        [...lines, "Transfer-Encoding: chunked", "Trailer: X-Checksum"],
        "2\r\n{}\r\n0\r\nX-Checksum: abc\r\n\r\n",
        "400/4003",
        { elsewhere: { deno: read, node: read } },
      ),
    ),
    raw(
      "a chunk size that is none",
      [...GOOD, "Transfer-Encoding: chunked"],
      "zz\r\n\r\n",
      REFUSED,
    ),
    raw(
      "a chunk size past 2^64",
      [...GOOD, "Transfer-Encoding: chunked"],
      `1${"0".repeat(17)}\r\n`,
      REFUSED,
    ),
    raw("no version", ["POST /plants", ...GOOD.slice(1)], plant(), REFUSED),
    raw("another version", ["POST /plants HTTP/3.0", ...GOOD.slice(1)], plant(), REFUSED),
    raw("no HTTP at all", ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], "", REFUSED),
  ],

  "UTF-8 and JSON": [
    ...NOT_UTF8.map(([what, bytes]) =>
      change(
        `a body with ${what}`,
        { body: Buffer.from(plant("", `"${bytes}"`), "latin1") },
        "400/4001",
      ),
    ),
    ...NOT_JSON.map(([what, body]) => change(`a body with ${what}`, { body }, "400/4001")),
    ...["[", '{"id":', "[{", '[{"name":'].map((open) =>
      change(`${open} 1,000 times over`, { body: open.repeat(1_000) }, "400/4001"),
    ),
    change(
      "arrays nested 20,000 deep",
      { body: "[".repeat(20_000) + "]".repeat(20_000) },
      "400/4001",
    ),
    change("a byte order mark", { body: `\uFEFF${plant()}` }, "200"),
  ],

  strings: [
    ...STORABLE_STRINGS.flatMap(([what, text]) => [
      change(`a name and a tag of ${what}`, { body: plantOf(JSON.stringify(text)) }, "200"),
      change(`a name and a tag of ${what}, escaped`, { body: plantOf(escaped(text)) }, "200"),
    ]),
    ...UNSTORABLE_STRINGS.flatMap(([what, json]) => [
      change(`a name that is or has ${what}`, { body: plant("", json) }, "400/4002"),
      change(
        `a tag that is or has ${what}`,
        { body: plant(`, "${OPTIONAL_TEXT}": ${json}`) },
        "400/4002",
      ),
    ]),
  ],

  members: [
    ...["__proto__", "constructor", "toString", "toJSON", "then", "length"].map((member) =>
      change(
        `a member named ${member}`,
        { body: plant(`, "${member}": {${IVY}, "id": 2}`) },
        "200",
      ),
    ),
    ...[
      `{"id": 1, "__proto__": {${FERN}}}`,
      `{${FERN}, "__proto__": {"id": 1}}`,
      `{"__proto__": {"id": 1, ${FERN}}}`,
      `{"\\u005f_proto__": {"id": 1, ${FERN}}}`,
      `{"id": 1, "constructor": {"prototype": {${FERN}}}}`,
      `{"constructor": {"prototype": {"id": 1, ${FERN}}}}`,
      `[{"id": 1, ${FERN}}]`,
      `{"plant": {"id": 1, ${FERN}}}`,
      `{"ID": 1, ${FERN}}`,
      `{"id": 1, ${FERN.replace(TEXT, TEXT.toUpperCase())}}`,
      "null",
      "1",
      '"Fern"',
      "true",
      "[]",
      "1e400",
      "{}",
    ].map((body) => change(`the body ${body}`, { body }, "400/4002")),
    change(
      "repeated members",
      { body: plant(`, "${OPTIONAL_TEXT}": null, "${TEXT}": 5, ${IVY}`) },
      "200",
    ),
    change("unknown members", { body: plant(', "color": "green", "Tag": "x"') }, "200"),
    change(
      "members in another order, escaped",
      {
        body: `{${escaped(OPTIONAL_TEXT)}: "x", ${FERN.replace(`"${TEXT}"`, () => escaped(TEXT))}, ${escaped("id")}: 999999}`,
      },
      "200",
    ),
    change(
      "a repeated member whose last one is bad",
      { body: plant(`, "${TEXT}": 5`) },
      "400/4002",
    ),
  ],

  // Another name under the id as plain digits: what was stored before is exactly that id.
  "ids that are taken": EXACT_IDS.map(([source, id]) =>
    change(`the id ${source} is ${id}`, { body: `{"id": ${id}, ${IVY}}` }, "409/4091", {
      before: requestOf({ body: `{"id": ${source}, ${FERN}}` }),
    }),
  ),

  "ids that do not count": NOT_IDS.map(([what, source]) =>
    change(`an id that is ${what}: ${source}`, { body: `{"id": ${source}, ${FERN}}` }, "400/4002"),
  ),

  hosts: [
    ...[
      "a",
      "localhost:3000",
      "a.example.",
      "[::1]:3000",
      "127.0.0.1",
      "a_b",
      "x".repeat(10_000),
      "1",
      "[::1]",
      "",
    ].map((host) => change(`the Host ${JSON.stringify(host.slice(0, 20))}`, { host }, "200")),
    ...["a", "1", "[::1]", ""].map((host) =>
      change(`chunks under the Host ${JSON.stringify(host)}`, { host, chunkSize: 9 }, "200"),
    ),
    ...["a", "1", "[::1]"].flatMap((host) => [
      change(`no credentials under the Host ${host}`, { host, authorization: [] }, "401/4011"),
      change(`an unknown path under the Host ${host}`, { host, path: "/nowhere" }, "404/4041"),
      change(`another method under the Host ${host}`, { host, method: "PUT" }, "405/4051"),
      change(`a query under the Host ${host}`, { host, path: "/plants?x=1" }, "200"),
    ]),
    ...[
      ["two of them", "Host: a\r\nHost: b"],
      ["two that are alike", "Host: a\r\nHost: a"],
      ["two that are empty", "Host:\r\nHost:"],
    ].map(([what, host = ""]) =>
      raw(`a Host with ${what}`, ["GET /livez HTTP/1.1", host], "\r\n", "400/4003", {
        elsewhere: { deno: REFUSED },
      }),
    ),
    ...[
      ["a fragment", "a#b"],
      ["a path", "a/livez"],
      ["a query", "a?b"],
      ["a user", "a@b"],
      ["a space", "a b"],
      ["a backslash", "a\\b"],
      ["half an address", "[::1"],
      ["a port that is none", "a:b"],
      ["what is not ASCII", "\u00e4"],
    ].map(([what, host]) =>
      raw(`a Host with ${what}`, ["GET /livez HTTP/1.1", `Host: ${host}`], "\r\n", "400/4003"),
    ),
    raw("no Host", ["GET /livez HTTP/1.1"], "\r\n", REFUSED, { elsewhere: { deno: "200" } }),
    raw("HTTP/1.0 without a Host", ["GET /livez HTTP/1.0"], "\r\n", "200"),
  ],

  // On their own: plants that are in flight together fail together.
  "an internal error": [
    change("a storage that throws", { body: plant("", '"broken"') }, "500/5001", FOR_TEST_APP),
  ],
  "storage that takes nothing": [
    change("a storage that is full", { body: plant("", '"full"') }, "503/5032", FOR_TEST_APP),
  ],
};

/** A plant whose name and tag are this string. */
function plantOf(json: string): string {
  return plant(`, "${OPTIONAL_TEXT}": ${json}`, json);
}

function escaped(text: string): string {
  const units = Array.from({ length: text.length }, (_, i) =>
    text.charCodeAt(i).toString(16).padStart(4, "0"),
  );
  return `"${units.map((unit) => `\\u${unit}`).join("")}"`;
}
