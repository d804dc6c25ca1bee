/**
 * Helpers for clients of the API: `fetch` with safe retries, exact ids past 2^53, and the error
 * numbers. Import it as `plant-store/client`, or copy this file: it imports nothing. It runs on
 * Bun, Deno, Node 22, and browsers since March 2025.
 *
 * @module
 */

/** The fields of a plant that the server returns. */
const FIELDS: readonly string[] = ["name", "tag"];

/**
 * The Plant Store's error numbers by cause. Handle an unknown number by the response's status:
 * later versions may add causes.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ERROR_NUMBERS } from "plant-store/client";
 *
 * const body = { error: 4091, message: "`id` is taken by a different plant; choose another id" };
 *
 * assert.equal(body.error, ERROR_NUMBERS.id_taken);
 * ```
 */
export const ERROR_NUMBERS = {
  malformed_json: 4001,
  invalid_plant: 4002,
  malformed_request: 4003,
  missing_credentials: 4011,
  invalid_credentials: 4012,
  insufficient_scope: 4031,
  unknown_path: 4041,
  method_not_allowed: 4051,
  id_taken: 4091,
  body_too_large: 4131,
  unsupported_media_type: 4151,
  internal: 5001,
  queue_full: 5031,
  storage_unavailable: 5032,
  shutting_down: 5033,
} as const;

/** The maximum number of attempts. */
const MAX_ATTEMPTS = 8;

/** How long one attempt may take, in milliseconds: longer than the server takes to respond. */
const ATTEMPT_TIMEOUT_MS = 10_000;

/** The longest `Retry-After` that is obeyed, in seconds. */
const MAX_RETRY_AFTER_S = 60;

/** Statuses below 500 by which a gateway says that the request can be sent again. */
const TEMPORARY: readonly number[] = [408, 425, 429];

/**
 * Sends `POST /plants` as `fetch` does, but with retries, which the plant's id makes safe.
 *
 * - 200 with `application/json` and the fields that were sent: the plant is stored.
 * - 4xx with an Error of the Plant Store: the plant is refused.
 * - Anything else: the plant may be stored, and is sent again. Examples are a network error, a
 *   truncated response, a status of 500 or above, and a proxy's or login's page. Redirects are not
 *   followed.
 *
 * Makes up to eight attempts of at most ten seconds each. In between it waits for `Retry-After`,
 * plus exponential backoff with full jitter. Each attempt gets `init`. A generated client can use
 * it as its `fetch`. A page that is being unloaded can send its plant once, with `keepalive: true`
 * and a string as `init.body`.
 *
 * @returns The response that acknowledges the plant, or refuses it for good (409 included). After
 *   eight attempts, the last response, if the Plant Store sent it.
 * @throws {Error} If the last attempt fails, or its response is not the Plant Store's: the message
 *   has the status, media type and `Location`. Without another attempt, if `Retry-After` is more
 *   than 60 seconds.
 * @throws {Error} If the method is not POST, or the runtime lacks `AbortSignal.any` or
 *   `AbortSignal.timeout`.
 * @throws The reason of the request's `signal`, once it is aborted.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { fetchWithRetries, int64 } from "plant-store/client";
 *
 * async function storeFern(url: string, token: string, signal: AbortSignal): Promise<number> {
 *   const response = await fetchWithRetries(`${url}/plants`, {
 *     method: "POST",
 *     headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
 *     body: JSON.stringify({ id: int64(9223372036854775807n), name: "Fern" }),
 *     signal,
 *   });
 *   return response.status;
 * }
 * const stored = storeFern("http://localhost:3000", "a-token-of-the-greenhouse", AbortSignal.abort());
 *
 * await assert.rejects(stored, { name: "AbortError" });
 * ```
 */
export async function fetchWithRetries(
  input: string | URL | Request,
  init?: Parameters<typeof fetch>[1],
): Promise<Response> {
  const request = new Request(input, init);
  const { headers, method } = request;
  if (method !== "POST")
    throw new TypeError(`Cannot send ${method}: fetchWithRetries() is for POST /plants`);
  for (const name of ["any", "timeout"] as const)
    if (typeof AbortSignal[name] !== "function")
      throw new Error(`Cannot send with retries: this runtime has no AbortSignal.${name}`);

  // While a page is being unloaded, its code runs only up to the first `await`.
  const body = typeof init?.body === "string" ? init.body : await request.arrayBuffer();
  const sent = membersOf(typeof body === "string" ? body : new TextDecoder().decode(body));

  for (let attempt = 1; ; attempt++) {
    let waitMs = Math.random() * Math.min(10_000, 100 * 2 ** attempt);
    let isLast = attempt === MAX_ATTEMPTS;
    let failure: unknown;

    try {
      const signal = AbortSignal.any([request.signal, AbortSignal.timeout(ATTEMPT_TIMEOUT_MS)]);
      // Pass `init` too: a Request drops options such as Bun's `proxy` and Node's `dispatcher`.
      const response = await fetch(request, { ...init, headers, body, redirect: "manual", signal });
      // Throws if the response is truncated.
      const isOurs = isPlantStores(response, sent, await response.clone().text());
      const isFinal = response.status < 500 && !TEMPORARY.includes(response.status);
      const retryAfterS = retryAfterOf(response);

      if (retryAfterS > MAX_RETRY_AFTER_S) {
        isLast = true;
        failure = unknownOutcome(response, `asks to wait ${retryAfterS} s, more than 60`);
      } else {
        if (isOurs && (isFinal || isLast)) return response;
        failure = unknownOutcome(response, "is not the Plant Store's");
      }
      waitMs += 1_000 * retryAfterS;
    } catch (error) {
      // No response, or a truncated one: the plant may or may not be stored.
      failure = error;
    }

    if (request.signal.aborted) throw request.signal.reason;
    if (isLast) throw failure;
    await untilAborted(request.signal, waitMs);
  }
}

/**
 * Whether a response is certainly the Plant Store's: it has the plant that was sent, or an Error of
 * its status.
 */
function isPlantStores({ status, headers }: Response, sent: Members, text: string): boolean {
  const [mediaType = ""] = (headers.get("content-type") ?? "").split(";");
  if (mediaType.trim().toLowerCase() !== "application/json") return false;

  const body = membersOf(text);
  if (status === 200) return isReturned(sent, body);

  const { error, message } = body;
  return (
    typeof error === "number" && Math.floor(error / 10) === status && typeof message === "string"
  );
}

/** Whether the response has each field as sent, and no field that was not sent. */
function isReturned(sent: Members, body: Members): boolean {
  const isSame = (field: string) => JSON.stringify(sent[field]) === JSON.stringify(body[field]);
  return FIELDS.some((field) => field in sent) && FIELDS.every(isSame);
}

type Members = Readonly<Record<string, unknown>>;

/** The members of a JSON object; none if the text is anything else. */
function membersOf(text: string): Members {
  try {
    // The server also ignores a byte order mark.
    return Object(JSON.parse(text.replace(/^\uFEFF/, "")));
  } catch {
    return {};
  }
}

/**
 * Returns the `Retry-After` of a response in seconds; 0 if it has none. A date, which RFC 9110,
 * section 10.2.3, also allows, counts as 0.
 */
function retryAfterOf({ headers }: Response): number {
  const retryAfter = headers.get("retry-after") ?? "";
  return /^\d+$/.test(retryAfter) ? Number(retryAfter) : 0;
}

/** Returns the error for a response after which the plant may or may not be stored. */
function unknownOutcome({ status, type, headers }: Response, what: string): Error {
  const location = headers.get("location");
  const parts = [
    // A browser hides everything else about a redirect.
    type === "opaqueredirect" ? "a redirect" : `status ${status}`,
    headers.get("content-type") ?? "no Content-Type",
    ...(location === null ? [] : [`Location: ${location}`]),
  ];
  return new Error(
    `Cannot tell if the plant is stored: the response ${what} (${parts.join(", ")})`,
  );
}

/** Waits this long, or until the signal is aborted: then the next attempt throws its reason. */
function untilAborted(signal: AbortSignal, waitMs: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      // On Deno, a signal with a timeout and a listener keeps the process alive.
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, waitMs);
    signal.addEventListener("abort", end);
  });
}

/**
 * Returns an id that `JSON.stringify` writes with all of its digits. A `number` past 2^53 silently
 * becomes another id, and `JSON.stringify` throws on a `bigint`. A client that copies objects, such
 * as axios, loses the result: see the guide.
 *
 * @returns The result of `JSON.rawJSON`, typed as the `number` that generated clients expect.
 * @throws {TypeError} If `id` is not a `bigint`: a `number` may have lost digits already.
 * @throws {RangeError} If it is not an int64.
 * @throws {Error} If the runtime lacks `JSON.rawJSON`.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { int64 } from "plant-store/client";
 *
 * const body = JSON.stringify({ id: int64(9223372036854775807n), name: "Fern" });
 *
 * assert.equal(body, '{"id":9223372036854775807,"name":"Fern"}');
 * ```
 */
export function int64(id: bigint): number {
  if (typeof id !== "bigint")
    throw new TypeError(`Cannot use the id ${String(id)}: expected a bigint, such as 1n`);
  if (BigInt.asIntN(64, id) !== id)
    throw new RangeError(`Cannot use the id ${id}: expected -2^63 to 2^63 - 1`);

  const { rawJSON } = JSON as { readonly rawJSON?: (text: string) => number };
  if (rawJSON === undefined)
    throw new Error(`Cannot write the id ${id}: this runtime has no JSON.rawJSON`);
  return rawJSON(String(id));
}
