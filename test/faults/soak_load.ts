import { withDeadline } from "../../src/async/deadline.ts";
import type { NewPlant } from "../../src/plant/plant.ts";
import { TOKEN } from "../support/client.ts";
import type { Ledger } from "../support/ledger.ts";
import { type Connection, connect, getBytes, postBytes, verdictOf, type WireResponse } from "../support/load.ts";
import { neverReading } from "./slow.ts";

/** How long a response may take before the request counts as hung, in milliseconds. */
const HANG_MS = 20_000;
/** How long to wait for a response to bytes that may be the beginning of a request, in milliseconds. */
const JUNK_MS = 500;

/** What the clients need. */
export interface SoakLoadOptions {
  readonly url: string;
  readonly ledger: Ledger;
  /** The plants of those that send good ones in an odd way. */
  readonly next: () => NewPlant;
  readonly random: () => number;
  /** A new JWT at each call: one that is good, or one with another signature. */
  readonly jwt: (kind: "good" | "forged") => Promise<string>;
}

/** Clients that do the same thing again and again. */
export interface SoakKind {
  readonly clients: number;
  /** Between two requests of a client, in milliseconds. */
  readonly pauseMs: number;
  /** Sends one request on a connection of its own, and says what came of it: see {@linkcode seenOf}. */
  readonly once: () => Promise<string>;
  /** What may come of it, beside a 503. */
  readonly expected: RegExp;
}

const STORED = /^(?:200|409\/4091)$/;
const PLANT = '{"id":1,"name":"Fern"}';

/** Clients of every bad kind, and good ones that are odd. */
export function soakKinds({ url, ledger, next, random, jwt }: SoakLoadOptions): Record<string, SoakKind> {
  const ask = (bytes: string | Uint8Array) => onConnection(url, (connection) => connection.request(bytes));
  const post = (body: string, token?: string) => ask(postBytes(body, token));
  const store = (send: (connection: Connection, bytes: string) => Promise<WireResponse | undefined>, token?: string) =>
    storeOne(ledger, next(), (plant) => onConnection(url, (connection) => send(connection, postBytes(plant, token))));
  const authorized = `\r\nAuthorization: Bearer ${TOKEN}\r\n\r\n`;

  return {
    "an unknown token": kind(4, 10, /^401\/4012$/, () => post(PLANT, `unknown${random()}`)),
    "no token": kind(1, 10, /^401\/4011$/, () => ask(postBytes(PLANT).replace(/Authorization.*\r\n/, ""))),
    "a forged JWT": kind(4, 10, /^401\/4012$/, async () => post(PLANT, await jwt("forged"))),
    "a new JWT": kind(2, 20, STORED, async () =>
      store((connection, bytes) => connection.request(bytes), await jwt("good")),
    ),
    "bad JSON": kind(2, 10, /^400\/4001$/, () => post('{"id": 1, "name": "Fern"')),
    "a wrong shape": kind(2, 10, /^400\/4002$/, () => post('{"id": "1", "name": null}')),
    "deep nesting": kind(1, 20, /^400\/4001$/, () => post("[".repeat(30_000))),
    "a huge body": kind(1, 50, /^413\/4131$/, () => post("x".repeat(1_000_000))),
    "a huge chunked body": kind(1, 50, /^413\/4131$/, () => ask(chunked(postBytes("x".repeat(500_000)), 50_000))),
    "one-byte chunks": kind(2, 20, STORED, () => store((connection, bytes) => connection.request(chunked(bytes, 1)))),
    "a slow body": kind(16, 0, STORED, () => store(sendSlowly)),
    "a reset in a body": kind(4, 20, /^none$/, () => reset(url, postBytes(PLANT).slice(0, -5))),
    "never reading": kind(2, 500, /^none$/, () => neverRead(url)),
    junk: kind(2, 10, /^(?:none|4\d\d|505)$/, () => sendJunk(url, random)),
    "1,500 parameters": kind(1, 20, /^404\/4041$/, () => ask(getBytes(`/plant?${"a=1&".repeat(1_500)}`))),
    "a scrape": kind(2, 200, /^200$/, () => ask(getBytes("/metrics").replace("\r\n\r\n", authorized))),
    "/livez": kind(1, 50, /^200$/, () => ask(getBytes("/livez"))),
    "/readyz": kind(1, 100, /^200$/, () => ask(getBytes("/readyz"))),
  };
}

function kind(clients: number, pauseMs: number, expected: RegExp, once: SoakKind["once"]): SoakKind {
  return { clients, pauseMs, expected, once };
}

/** Sends a plant, tells the ledger, and says what came of it. */
export async function storeOne(
  ledger: Ledger,
  plant: NewPlant,
  send: (plant: NewPlant) => Promise<string>,
): Promise<string> {
  ledger.attempt(plant);
  const seen = await send(plant);
  if (seen === "200") ledger.acknowledge(plant);
  return seen === "409/4091" && !ledger.hasRival(plant) ? "409 without a rival" : seen;
}

/** Status and error number, the status only of a response without a body, "none", or "hung". */
export async function seenOf(response: Promise<WireResponse | undefined>): Promise<string> {
  const seen = await withDeadline(response, HANG_MS, () => "hung" as const);
  if (seen === undefined) return "none";
  if (seen === "hung") return "hung";
  return seen.body === "" ? String(seen.status) : verdictOf(seen);
}

async function onConnection(
  url: string,
  send: (connection: Connection) => Promise<WireResponse | undefined>,
): Promise<string> {
  const connection = await connect(url);
  const seen = await seenOf(send(connection));
  connection.close();
  return seen;
}

/** A request with its body in chunks of so many bytes: RFC 9112, section 7.1. */
function chunked(request: string, bytes: number): Buffer {
  const [head = "", text = ""] = request.split("\r\n\r\n");
  const body = Buffer.from(text);
  const parts: Uint8Array[] = [
    Buffer.from(`${head.replace(/Content-Length: \d+/, "Transfer-Encoding: chunked")}\r\n\r\n`),
  ];
  for (let at = 0; at < body.length; at += bytes) {
    const chunk = body.subarray(at, at + bytes);
    parts.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from("\r\n"));
  }
  return Buffer.concat([...parts, Buffer.from("0\r\n\r\n")]);
}

/** In twenty pieces, for about a second. */
async function sendSlowly(connection: Connection, request: string): Promise<WireResponse | undefined> {
  const bytes = Buffer.from(request);
  const size = Math.ceil(bytes.length / 20);
  for (let at = 0; at < bytes.length; at += size) {
    connection.send(bytes.subarray(at, at + size));
    await Bun.sleep(50);
  }
  return connection.response();
}

async function reset(url: string, bytes: string): Promise<string> {
  const connection = await connect(url);
  connection.send(bytes);
  await Bun.sleep(5);
  connection.close("reset");
  return "none";
}

async function neverRead(url: string): Promise<string> {
  const connection = await neverReading(url);
  await Bun.sleep(2_000);
  connection.close("reset");
  return "none";
}

/** Bun's own parser responds without a body, waits for more, or closes. */
async function sendJunk(url: string, random: () => number): Promise<string> {
  const bytes = Uint8Array.from({ length: 1 + random() * 200 }, () => random() * 256);
  const connection = await connect(url);
  const response = connection.request(
    random() < 0.5 ? bytes : Buffer.concat([Buffer.from("POST /plants HTTP/1.1\r\n"), bytes]),
  );
  const seen = await withDeadline(seenOf(response), JUNK_MS, () => "none");
  connection.close("reset");
  return seen;
}
