// The app and every store import this file. Fail at import: otherwise an older runtime fails at some
// requests only.
if (typeof Promise.withResolvers !== "function")
  throw new Error("Cannot use plant-store here: it needs Node 22.3, Deno 2.2, Bun 1.1.45 or newer");

/** One row of the response table. */
export interface ErrorRow {
  /**
   * The number on the wire: the HTTP status times ten, plus a digit for the cause. Fits an int32.
   */
  readonly error: number;
  /** When this response is returned, for the readers of the OpenAPI document. */
  readonly situation: string;
  /** The message for the client, unless there is a more precise one. */
  readonly message: string;
}

/**
 * The causes of errors, each with its number. Responses and the OpenAPI document follow this table.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { ERRORS } from "plant-store";
 *
 * assert.equal(ERRORS.id_taken.error, 4091);
 * ```
 */
export const ERRORS = {
  malformed_json: {
    error: 4001,
    situation: "not JSON, not UTF-8, nested deeper than 100 levels, or no body",
    message: "the body must be valid JSON",
  },
  invalid_plant: {
    error: 4002,
    situation: "JSON, but not a NewPlant; the message names every field at fault",
    message: "the body must be a JSON object with the fields of a NewPlant",
  },
  malformed_request: {
    error: 4003,
    situation:
      "the Host header is invalid or repeated, or the request announces a `Trailer` or expects `100-Continue`",
    message: "the request must have one Host header with a valid host",
  },

  missing_credentials: {
    error: 4011,
    situation: "no credentials, or those of another scheme",
    message: "the Authorization header must carry a bearer token",
  },
  invalid_credentials: {
    error: 4012,
    situation: "a bearer token that is malformed, unknown, expired or revoked",
    message: "the bearer token is not valid",
  },

  insufficient_scope: {
    error: 4031,
    situation: "valid token without the required scope",
    message: "the token does not have the required scope",
  },

  unknown_path: {
    error: 4041,
    situation: "unknown path",
    message: "unknown path; create plants with POST /plants",
  },

  method_not_allowed: {
    error: 4051,
    situation: "another method on a known path",
    message: "method not allowed; `Allow` lists those that are",
  },

  id_taken: {
    error: 4091,
    situation: "a different plant has the id; that plant is unchanged",
    message: "`id` is taken by a different plant; choose another id",
  },

  body_too_large: {
    error: 4131,
    situation:
      "the body is over the limit, with Content-Length or chunked, or comes in hundreds of tiny chunks",
    message: "the body is too large",
  },

  unsupported_media_type: {
    error: 4151,
    situation:
      "a media type other than application/json, a charset other than UTF-8, or any Content-Encoding",
    message: "the Content-Type must be application/json in UTF-8",
  },

  internal: {
    error: 5001,
    situation: "an internal error; the log has its cause under the same request id",
    message: "internal error; the plant may be stored, send it again",
  },

  queue_full: {
    error: 5031,
    situation:
      "the queue for plants is full, or a token cannot be checked now: too many tokens wait, its key may be new, or tokens or keys cannot be loaded",
    message: "too many plants are waiting; send the plant again later",
  },
  storage_unavailable: {
    error: 5032,
    situation:
      "storage cannot take the plant now (full, locked, read-only, gone), or did not finish in time; the outcome may be unknown, and sending the plant again settles it",
    message: "storage is unavailable; send the plant again later",
  },
  shutting_down: {
    error: 5033,
    situation: "the server is shutting down",
    message: "the server is shutting down; send the plant again",
  },
} as const satisfies Record<string, ErrorRow>;

/** A cause of a failed request, from a closed list. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Returns the HTTP status of a cause (RFC 9110, section 15).
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { statusOf } from "plant-store";
 *
 * assert.equal(statusOf("id_taken"), 409);
 * ```
 */
export function statusOf(code: ErrorCode): number {
  return Math.floor(ERRORS[code].error / 10);
}

/** The parts of an error beyond its message, for the log. */
export interface PlantStoreErrorOptions extends ErrorOptions {
  /** Why credentials were refused, or could not be checked, in words. */
  readonly reason?: string | undefined;
  /** The scope that the token would need. It is also sent to the client. */
  readonly scope?: string | undefined;
}

/** Marks our errors in every copy of this module. */
const IS_OURS = Symbol.for("plant-store.PlantStoreError");

/**
 * An error whose cause is reported to the client. Any other error that a port throws becomes an
 * internal error. So does a `PlantStoreError` copied by `structuredClone` or `postMessage`: the
 * copy has no code.
 *
 * @example A store whose database is unavailable
 * ```ts
 * import assert from "node:assert/strict";
 * import { type PlantStore, PlantStoreError } from "plant-store";
 *
 * const cause = new Error("connect ECONNREFUSED");
 * const refuse = async () => {
 *   throw new PlantStoreError("storage_unavailable", undefined, { cause });
 * };
 * const store: PlantStore = { add: refuse, probe: refuse };
 *
 * await assert.rejects(store.probe(), { code: "storage_unavailable", cause });
 * ```
 */
export class PlantStoreError extends Error {
  override readonly name: string = "PlantStoreError";
  /** The cause, from the closed list. */
  readonly code: ErrorCode;
  /** Why credentials were refused, or could not be checked, in words for the log only. */
  readonly reason: string | undefined;
  /** The scope that the token would need (RFC 6750, section 3). */
  readonly scope: string | undefined;

  static {
    // Node prints an error by the name of its class, which a bundler may change.
    Object.defineProperty(this, "name", { value: "PlantStoreError" });
  }

  /**
   * Recognizes an error by its mark and code, not its class: a program may load two copies of this
   * module, or use several realms. A subclass recognizes only its own instances.
   */
  static override [Symbol.hasInstance](error: unknown): error is PlantStoreError {
    if (this !== PlantStoreError) return Function.prototype[Symbol.hasInstance].call(this, error);
    if (typeof error !== "object" || error === null || !(IS_OURS in error)) return false;

    const { code, message } = error as Partial<PlantStoreError>;
    return Object.hasOwn(ERRORS, String(code)) && typeof message === "string";
  }

  /**
   * @param message A sentence that tells the client the fault and its place. It must not contain
   *   SQL, paths or tokens.
   */
  constructor(
    code: ErrorCode,
    message: string = ERRORS[code].message,
    options: PlantStoreErrorOptions = {},
  ) {
    // Capturing a stack is half of the cost of an error, and only an internal error needs one.
    const { stackTraceLimit } = Error as { readonly stackTraceLimit?: number };
    if (code !== "internal") setStackTraceLimit(0);
    super(message, options);
    setStackTraceLimit(stackTraceLimit);
    Object.assign(this, { [IS_OURS]: true });
    this.code = code;
    this.reason = options.reason;
    this.scope = options.scope;
  }
}

/**
 * Sets how many stack frames an error captures. Every engine supports this, but no standard defines
 * it. Does nothing if a program has frozen its intrinsics.
 */
function setStackTraceLimit(frames: number | undefined): void {
  Reflect.set(Error, "stackTraceLimit", frames);
}

/** A setting or an argument that cannot be used: a usage error. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

/** A command failed for a reason that its user can act on. The message is one line. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/**
 * A failure without a message of its own: it was printed or logged before, or the reader of the
 * output has exited, as `head` does.
 */
export class QuietFailure extends Error {
  override readonly name = "QuietFailure";
}

/**
 * Checks a numeric option. `NaN` would limit nothing, because every comparison with it is false.
 *
 * @throws {TypeError} If it is not a number from `min` to `max`.
 */
export function requireNumber(
  name: string,
  value: unknown,
  { min = 1, max = Number.MAX_SAFE_INTEGER } = {},
): void {
  if (typeof value === "number" && value >= min && value <= max) return;

  const given = typeof value === "string" ? `"${value}"` : String(value);
  throw new TypeError(`Cannot use \`${name}\` ${given}: expected ${min} to ${max}`);
}

/**
 * Refuses unknown options: a misspelled one would silently be ignored.
 *
 * @param rest The options without the known ones.
 * @throws {TypeError} If an option is unknown.
 */
export function requireNoMore(rest: Readonly<Record<string, never>>): void {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw new TypeError(`Cannot use \`${name}\`: there is no such option`);
}

/**
 * Calls a callback of the program that uses the module. Prints an error that it throws or rejects
 * with: the plant may be stored, and its client needs the response.
 *
 * @param name The name of the option, for the message.
 * @returns The callback's result; `undefined` if it throws.
 */
export function attempt<Result>(
  name: string,
  call: () => Result,
  requestId?: string,
): Result | undefined {
  const print = (cause: unknown) => {
    const request = requestId === undefined ? "" : `Request ${requestId}: `;
    console.error(`${request}\`${name}\` threw:`, cause);
  };

  try {
    const result = call();
    // Node ends a process whose promises reject unhandled.
    if (result instanceof Promise) result.catch(print);
    return result;
  } catch (cause) {
    print(cause);
    return undefined;
  }
}

/** Whether the operating system refused something, such as opening a file. */
export function isSystemError(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}

/**
 * Returns the system's words for a failure, without the call and the path: "no space left on
 * device".
 */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return /^E[A-Z0-9]+: (.+?)(?:, \w+(?: '.*)?)?$/s.exec(message)?.[1] ?? message;
}

/**
 * Escapes control characters as `\u{…}`: a message or the log may quote typed text, a file or a
 * token.
 */
export function escapeControls(text: string): string {
  return text.replaceAll(
    /\p{C}/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
