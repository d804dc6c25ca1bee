import { timingSafeEqual } from "node:crypto";
import { safeParse } from "fast-content-type-parse";
import { parseExactJson } from "../../src/plant/exact_json.ts";
import { isNestedDeeper } from "../../src/plant/json_depth.ts";
import type { HandPlant, Outcome } from "./by_hand_http.ts";

const MAX_BODY_BYTES = 65_536;
const COMMON = { "content-type": "application/json", "x-content-type-options": "nosniff" };
const STORED: ResponseInit = { headers: new Headers(COMMON) };
const ROOM = new Uint8Array(32);
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Why a request is refused: the number of the contract's `Error`, whose first three digits are the status. */
class Refusal extends Error {
  readonly error: number;
  readonly headers: Record<string, string>;

  constructor(error: number, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.error = error;
    this.headers = headers;
  }
}

/**
 * `POST /plants` on `Bun.serve` without a framework, as strict as the program: exact ids, strict UTF-8 and credentials,
 * the limit of the body, request ids, and the same status and error number for what a request to `/plants` can have
 * wrong, which the program's own fuzz checks. What differs then is the price of the framework, and of what is not here:
 * other routes, deadlines, a bounded queue, metrics and logs.
 *
 * @param add Resolves once the plant is durable.
 */
export function serveStrictly(add: (plant: HandPlant) => Promise<Outcome>): void {
  const known = digest(process.env["AUTH_TOKENS"] ?? "").slice();

  async function create(request: Request): Promise<Response> {
    requireRoute(request);
    requireToken(request.headers.get("authorization"), known);
    requireJson(request.headers);
    const plant = plantOf(await readBody(request));
    if ((await add(plant)) === "conflict") throw new Refusal(4091, "`id` is taken by a different plant");
    const { name, tag } = plant;
    return Response.json(tag === undefined ? { name } : { name, tag }, STORED);
  }

  async function response(request: Request): Promise<Response> {
    const response = await create(request).catch(refused);
    const own = request.headers.get("x-request-id");
    response.headers.set("x-request-id", own !== null && /^[\w.:/+=@-]{1,128}$/.test(own) ? own : crypto.randomUUID());
    return response;
  }

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    fetch: response,
  });
  process.on("SIGTERM", () => process.exit(0));
  process.stderr.write(`By hand, strictly, listens on http://127.0.0.1:${server.port}\n`);
}

function refused(cause: unknown): Response {
  if (!(cause instanceof Refusal)) throw cause;
  const { error, message, headers } = cause;
  const status = Math.floor(error / 10);
  return Response.json({ error, message }, { status, headers: { ...COMMON, "cache-control": "no-store", ...headers } });
}

/** Bun gives a bare path where the Host header is of no use. */
function requireRoute({ url, method }: Request): void {
  const start = url.startsWith("/") ? 0 : url.indexOf("/", "https://".length);
  const query = url.indexOf("?", start);
  const path = url.slice(start, query === -1 ? undefined : query);
  if (path !== "/plants" && path !== "/livez") throw new Refusal(4041, "not found");
  if (path !== "/plants" || method !== "POST") throw new Refusal(4051, "method not allowed", { allow: "POST" });
}

function requireToken(authorization: string | null, known: Uint8Array): void {
  if (authorization === null) throw new Refusal(4011, "no credentials", { "www-authenticate": "Bearer" });
  const token = /^bearer +([\w\-.~+/]+=*)$/i.exec(authorization)?.[1];
  if (token !== undefined && timingSafeEqual(digest(token), known)) return;
  throw new Refusal(4012, "bad credentials", { "www-authenticate": 'Bearer error="invalid_token"' });
}

/** @returns The digest, until the next call. */
function digest(token: string): Uint8Array {
  return Bun.SHA256.hash(token, ROOM) as Uint8Array;
}

function requireJson(headers: Headers): void {
  const contentType = headers.get("content-type");
  const encoded = headers.has("content-encoding");
  if (encoded || (contentType !== "application/json" && !isJson(contentType ?? ""))) {
    throw new Refusal(4151, "the body must be application/json in UTF-8, without a Content-Encoding");
  }
}

function isJson(contentType: string): boolean {
  const { type, parameters } = safeParse(contentType);
  return type === "application/json" && (parameters["charset"] ?? "utf-8").toLowerCase() === "utf-8";
}

async function readBody(request: Request): Promise<Uint8Array> {
  const length = request.headers.get("content-length");
  if (length !== null && !request.headers.has("transfer-encoding")) {
    requireSize(Number(length));
    return request.bytes();
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    requireSize((size += chunk.length));
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function requireSize(bytes: number): void {
  if (bytes > MAX_BODY_BYTES) throw new Refusal(4131, "the body is too large", { connection: "close" });
}

function plantOf(body: Uint8Array): HandPlant {
  const value = parsed(body);
  if (typeof value !== "object" || value === null) throw new Refusal(4002, "not a plant");
  const { id, name, tag } = value as Record<string, unknown>;
  if (!isInt64(id)) throw new Refusal(4002, "`id` must be an int64");
  if (!isStorable(name)) throw new Refusal(4002, "`name` must be text");
  if (tag !== undefined && !isStorable(tag)) throw new Refusal(4002, "`tag` must be text");
  // SQLite reads an integer from its digits, JSON carries no bigint to a Worker.
  const digits = typeof id === "bigint" ? String(id) : id;
  return tag === undefined ? { id: digits, name } : { id: digits, name, tag };
}

function parsed(body: Uint8Array): unknown {
  try {
    const text = utf8.decode(body);
    if (isNestedDeeper(text, 100)) throw new SyntaxError("nested too deep");
    return parseExactJson(text);
  } catch {
    throw new Refusal(4001, "the body must be JSON in UTF-8");
  }
}

function isInt64(id: unknown): id is number | bigint {
  return Number.isSafeInteger(id) || (typeof id === "bigint" && BigInt.asIntN(64, id) === id);
}

function isStorable(text: unknown): text is string {
  return typeof text === "string" && text.isWellFormed() && !text.includes("\0");
}
