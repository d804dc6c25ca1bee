/**
 * For clients of the API: retries that store a plant once, and ids past 2^53. It imports nothing,
 * and runs on Bun, Deno, Node 22 and in browsers since March 2025: import it as
 * `plant-store/client`, or copy this file.
 *
 * @module
 */

/** How often a plant is sent before its sender gives up. */
const MAX_ATTEMPTS = 8;

/** How long one attempt may take, in milliseconds: longer than the server takes to respond. */
const ATTEMPT_TIMEOUT_MS = 10_000;

/**
 * `fetch` for `POST /plants`, with retries: the plant's id makes it safe to send the plant again.
 *
 * Sends the same request up to eight times, each with a limit of ten seconds: after a network
 * error, after a response that was cut short, and after a status of 500 and above. Between them it
 * waits with exponential backoff and full jitter, in addition to the seconds of `Retry-After`. It
 * fits wherever a generated client takes a `fetch`.
 *
 * @returns The first response with a status below 500: the plant is stored, or refused for good,
 *   with 409 too. After eight attempts, the last response.
 * @throws The last network error, after eight attempts; the reason of the request's `signal`, at
 *   once.
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
  init?: RequestInit,
): Promise<Response> {
  const request = new Request(input, init);

  for (let attempt = 1; ; attempt++) {
    let waitMs = Math.random() * Math.min(10_000, 100 * 2 ** attempt);

    try {
      const deadline = AbortSignal.timeout(ATTEMPT_TIMEOUT_MS);
      const signal = AbortSignal.any([request.signal, deadline]);
      const response = await fetch(request.clone(), { signal });
      // Throws if the response is cut short.
      await response.clone().arrayBuffer();

      if (response.status < 500 || attempt === MAX_ATTEMPTS) return response;
      // A date, which RFC 9110, section 10.2.3, allows as well, counts as none.
      waitMs += 1_000 * (Number(response.headers.get("retry-after")) || 0);
    } catch (error) {
      // No response, or a part of one: the plant may or may not be stored.
      if (request.signal.aborted || attempt === MAX_ATTEMPTS) throw error;
    }

    await untilAborted(request.signal, waitMs);
  }
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
 * An id as JSON, with all of its digits. A `number` past 2^53 silently becomes another id, and
 * `JSON.stringify` throws on a `bigint`. Clients that copy objects, such as axios, need
 * {@linkcode allowBigInts} instead.
 *
 * @returns What `JSON.stringify` writes as the digits. Its type is what generated clients ask for.
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
  return (JSON as unknown as { rawJSON(text: string): number }).rawJSON(String(id));
}

/**
 * Makes `JSON.stringify` write every `bigint` as its digits, in the whole program: for clients that
 * copy objects, such as axios.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { allowBigInts } from "plant-store/client";
 *
 * allowBigInts();
 *
 * assert.equal(JSON.stringify({ id: 9223372036854775807n }), '{"id":9223372036854775807}');
 * ```
 */
export function allowBigInts(): void {
  const toJSON = function (this: bigint) {
    return int64(this);
  };
  Object.assign(BigInt.prototype, { toJSON });
}
