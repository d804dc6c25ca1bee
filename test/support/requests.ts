import * as fc from "fast-check";
import { bodyBytes, bodyText, mostly } from "./json_text.ts";
import type { OracleOptions, WireRequest } from "./oracle.ts";

/** Requests of every kind: most are good in all but one thing, or in all; `oracle.ts` says what has to be the response. */
export function anyRequest({ token, maxBodyBytes }: OracleOptions): fc.Arbitrary<WireRequest> {
  const { path, method, authorization, contentType } = goodRequest(token);
  return fc.oneof(
    {
      weight: 60,
      arbitrary: fc.record({
        path: mostly(path, fc.oneof(fc.constantFrom("/plants?access_token=x&id=1", "/plants?"), wrongPath)),
        method: mostly(method, fc.constantFrom("GET", "PUT", "DELETE", "PATCH", "OPTIONS"), 30),
        authorization: mostly(authorization, credentials(token), 8),
        contentType: mostly<string | undefined>(contentType, otherMediaType, 8),
        contentEncoding: mostly<string | undefined>(undefined, fc.constantFrom("gzip", "identity", "br"), 30),
        body: bodyBytes,
      }),
    },
    { weight: 1, arbitrary: requestAtLimit({ token, maxBodyBytes }) },
    { weight: 1, arbitrary: fc.constant({ ...goodRequest(token), path: "/livez" }) },
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

/** A request with nothing wrong in it but perhaps its body. */
export function goodRequest(token: string, body = ""): WireRequest {
  return {
    path: "/plants",
    method: "POST",
    authorization: [`Bearer ${token}`],
    contentType: "application/json",
    body: new TextEncoder().encode(body),
  };
}

/** The headers of a request, in the order of the wire. */
export function headersOf(request: Omit<WireRequest, "body">): [name: string, value: string][] {
  const { authorization, contentType, contentEncoding } = request;
  const headers = authorization.map((value): [string, string] => ["Authorization", value]);
  if (contentType !== undefined) headers.push(["Content-Type", contentType]);
  if (contentEncoding !== undefined) headers.push(["Content-Encoding", contentEncoding]);
  return headers;
}

/** How a request is written down. */
export interface Framing {
  readonly host: string;
  readonly isLowerCase: boolean;
  /** The sizes of the chunks, again and again; none for a body with a Content-Length. */
  readonly chunkSizes: readonly number[];
}

/** A request as bytes, with a Content-Length unless it is to be framed in another way. */
export function wireBytes(request: WireRequest, framing: Partial<Framing> = {}): Buffer {
  const { host = "localhost", isLowerCase = false, chunkSizes = [] } = framing;
  const { method, path, body } = request;
  const isChunked = chunkSizes.length > 0;
  const length = isChunked ? ["Transfer-Encoding", "chunked"] : ["Content-Length", String(body.length)];
  const lines = [["Host", host], ...headersOf(request), length].map(
    ([name = "", value]) => `${isLowerCase ? name.toLowerCase() : name}: ${value}`,
  );
  const head = [`${method} ${path} HTTP/1.1`, ...lines].join("\r\n");
  return Buffer.concat([Buffer.from(`${head}\r\n\r\n`, "latin1"), isChunked ? chunked(body, chunkSizes) : body]);
}

/** RFC 9112, section 7.1. */
function chunked(bytes: Uint8Array, sizes: readonly number[]): Buffer {
  const parts: Uint8Array[] = [];
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const chunk = bytes.subarray(at, at + (sizes[turn % sizes.length] ?? 1));
    const size = chunk.length.toString(16);
    parts.push(Buffer.from(`${turn % 2 === 0 ? size : size.toUpperCase()}\r\n`), chunk, Buffer.from("\r\n"));
    at += chunk.length;
  }
  return Buffer.concat([...parts, Buffer.from("0\r\n\r\n")]);
}

const wrongPath = fc.constantFrom(
  "/plant",
  "/plantss",
  "/plants/",
  "/Plants",
  "/plants/1",
  "/__proto__",
  "//",
  "//plants",
  "//x/plants",
);

/** RFC 6750, section 2.1; RFC 9110, section 11.4. */
function credentials(token: string): fc.Arbitrary<string[]> {
  const good = fc
    .tuple(cased("bearer"), fc.constantFrom(" ", "  ", "     "))
    .map(([scheme, space]) => scheme + space + token);
  const around = fc.constantFrom(
    "Bearer",
    "Bearer,",
    "Basic",
    "bearer\t",
    `Bearer ${token},`,
    "",
    "=",
    "====",
    "é",
    `"`,
    token,
    "x",
    `Bearer${token}`,
    `Bearer ${token}x`,
    `Bearer "${token}"`,
    `Bearer ${token.toUpperCase()}`,
  );
  const pieces = fc.array(around, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(" ").trim());
  // Empty: whether that is no credentials or bad ones is nowhere said.
  const bad = fc.oneof(headerValue(), pieces).filter((value) => value !== "");
  return fc.oneof(
    { weight: 2, arbitrary: good.map((value) => [value]) },
    bad.map((value) => [value]),
    fc.constantFrom<string[]>([], [`Bearer ${token}`, `Bearer ${token}`], ["Basic eDp5", `Bearer ${token}`]),
  );
}

/** A media type that is well formed, in any spelling; at most one charset. */
const mediaType: fc.Arbitrary<string> = fc
  .tuple(
    fc.oneof(
      { weight: 4, arbitrary: cased("application/json") },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          "text/plain",
          "text/json",
          "application/xml",
          "application/jsonx",
          "application/json-patch+json",
          "*/*",
          "application/x-www-form-urlencoded",
          "multipart/form-data",
        ),
      },
    ),
    fc.uniqueArray(fc.tuple(fc.constantFrom(";", "; ", " ; ", ";\t"), fc.oneof(charset(), otherParameter())), {
      maxLength: 3,
      selector: ([, [name]]) => name.toLowerCase(),
    }),
  )
  .map(([type, parameters]) => type + parameters.map(([separator, pair]) => separator + pair.join("=")).join(""));

const otherMediaType = fc.oneof({ weight: 4, arbitrary: mediaType }, headerValue(), fc.constant(undefined));

function charset(): fc.Arbitrary<[string, string]> {
  const values = fc.constantFrom("utf-16", '"latin1"', "utf8", "x");
  return fc.tuple(cased("charset"), fc.oneof(cased("utf-8"), cased("utf-8"), cased('"utf-8"'), values));
}

function otherParameter(): fc.Arbitrary<[string, string]> {
  return fc.tuple(
    fc.constantFrom("x", "profile", "q", "xcharset", "boundary", "version"),
    fc.constantFrom("1", '"a;charset=x"', '"\\""', "utf-16"),
  );
}

function cased(text: string): fc.Arbitrary<string> {
  return fc
    .tuple(...Array.from(text, (char) => fc.constantFrom(char, char.toUpperCase())))
    .map((characters) => characters.join(""));
}

/** What HTTP lets through as a header's value, and is no media type and no credentials. */
function headerValue(): fc.Arbitrary<string> {
  return fc
    .array(fc.oneof(fc.integer({ min: 0x20, max: 0x7e }), fc.constant(9), fc.integer({ min: 0x80, max: 0xff })), {
      maxLength: 30,
    })
    .map((codes) => String.fromCharCode(...codes).trim())
    .filter((value) => !/^(application\/json|bearer )/i.test(value));
}
