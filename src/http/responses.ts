import { type ErrorCode, ERRORS, type PlantStoreError, statusOf } from "../errors.ts";

/** How long a client should wait before it tries again, in seconds (RFC 9110, section 10.2.3). */
const RETRY_AFTER = "1";

/** What a cause adds to the headers of every error. */
const EXTRA_HEADERS: Partial<Record<ErrorCode, Record<string, string>>> = {
  // RFC 6750, section 3: no error code if no credentials were sent.
  missing_credentials: { "www-authenticate": 'Bearer realm="plant-store"' },
  invalid_credentials: { "www-authenticate": 'Bearer realm="plant-store", error="invalid_token"' },
  insufficient_scope: { "www-authenticate": 'Bearer realm="plant-store", error="insufficient_scope"' },
  // The client and the server may not agree on where the request ends (RFC 9112, section 11.2).
  malformed_request: { connection: "close" },
  // The rest of the body is not read, so the connection cannot carry another request.
  body_too_large: { connection: "close" },
  queue_full: { "retry-after": RETRY_AFTER },
  storage_unavailable: { "retry-after": RETRY_AFTER },
  shutting_down: { "retry-after": RETRY_AFTER, connection: "close" },
};

/** The headers a response to this cause has, beyond those of every response, for responses and the OpenAPI document. */
export function extraHeaders(code: ErrorCode): Readonly<Record<string, string>> {
  return EXTRA_HEADERS[code] ?? {};
}

// Headers are made once: building them for every response is what costs most in making one, and a Response copies them.
const COMMON = { "content-type": "application/json", "x-content-type-options": "nosniff" };
const SUCCESS: ResponseInit = { headers: new Headers(COMMON) };
const FAILURE = Object.fromEntries(
  (Object.keys(ERRORS) as ErrorCode[]).map((code) => [code, { status: statusOf(code), headers: failureHeaders(code) }]),
) as Record<ErrorCode, { status: number; headers: Headers }>;

function failureHeaders(code: ErrorCode): Headers {
  return new Headers({ ...COMMON, "cache-control": "no-store", ...extraHeaders(code) });
}

/** The response that carries what a handler returned; one that is made already stays as it is. */
export function successResponse(body: unknown): Response | undefined {
  return body instanceof Response ? undefined : Response.json(body, SUCCESS);
}

/** The response to a request that failed: the contract's Error, with the headers its cause calls for. */
export function errorResponse({ code, message }: PlantStoreError): Response {
  return Response.json({ error: ERRORS[code].error, message }, FAILURE[code]);
}
