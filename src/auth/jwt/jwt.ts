import { hash } from "node:crypto";

import {
  base64url,
  errors,
  type JWTHeaderParameters,
  type JWTPayload,
  jwtVerify,
  type JWTVerifyOptions,
} from "jose";

import { requireNoMore } from "../../errors.ts";
import {
  type Accepted,
  accepted,
  isScopeName,
  type Lack,
  refused,
  type Verdict,
} from "../authenticate.ts";
import {
  type FoundKeys,
  isObject,
  providerKeys,
  type ProviderKeysOptions,
  tooManyWait,
  usingKey,
} from "./provider_keys.ts";

const RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] as const;
const ELLIPTIC_CURVES = ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"] as const;

/**
 * The signature algorithms that JWTs may use (RFC 8725, section 3.1). `none` and HMAC are excluded:
 * with HMAC, a public key would be the secret.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { JWT_ALGORITHMS } from "plant-store";
 *
 * assert(JWT_ALGORITHMS.includes("EdDSA"));
 * ```
 */
export const JWT_ALGORITHMS = [...RSA, ...ELLIPTIC_CURVES] as const;
/** One of {@linkcode JWT_ALGORITHMS} (RFC 7518, section 3.1; RFC 8037; RFC 9864). */
export type JwtAlgorithm = (typeof JWT_ALGORITHMS)[number];

/** Options of {@linkcode jwtAuthenticator}. */
export interface JwtOptions extends ProviderKeysOptions {
  /** The exact `iss` of accepted tokens. */
  readonly issuer: string;

  /** The name of this API, not of a client: the `aud` of accepted tokens equals or contains it. */
  readonly audience: string;

  /**
   * The scope that a token needs in `scope` (RFC 9068, section 2.2.3); in `scp` if it has no
   * `scope`; in `roles` if it has neither. A token without it has no access.
   *
   * @default every token has full access
   */
  readonly scope?: string | undefined;

  /**
   * Accepted values of `sub`; or a prefix that ends with `:`, `/` or `|`, followed by `*`. A token
   * of another subject has no access. Necessary if the issuer signs tokens for anybody.
   *
   * @default any
   */
  readonly subjects?: readonly string[] | undefined;

  /** The algorithms of accepted signatures. @default all of {@linkcode JWT_ALGORITHMS} */
  readonly algorithms?: readonly JwtAlgorithm[] | undefined;

  /** Returns milliseconds since 1970 UTC. @default `Date.now` */
  readonly now?: (() => number) | undefined;
}

/** Validates JWTs. */
export interface JwtAuthenticator {
  /**
   * Validates a token. Returns the verdict, not a promise, if the token is remembered or malformed.
   *
   * @throws {PlantStoreError} `queue_full` if the provider's keys are unavailable, if the token's
   *   key may be newer than the cached ones, or if more than 1,000 tokens wait.
   */
  (token: string): Verdict | Promise<Verdict>;

  /**
   * Fetches the keys if a fetch is due: at the start, after 5 minutes, and 10 seconds after a
   * failure. Never rejects. A server that calls it every few seconds notices a wrong URL before a
   * client does, and lets no token wait for a slow provider.
   */
  readonly refreshKeys: () => Promise<void>;
}

/**
 * Accepts the JSON Web Tokens (RFC 7519) that an identity provider signs for this service. By the
 * rules of RFC 8725, signatures are asymmetric, and `iss`, `aud` and `exp` are required. `nbf` is
 * enforced. Clocks may differ by 30 seconds. ID, refresh and logout tokens are refused.
 *
 * The first token triggers a fetch of the keys. Keys older than 5 minutes are refreshed in the
 * background. A token that cannot be verified triggers a fetch, at most every 10 seconds. The
 * provider may sign with a new key, even under the id of the old one. A withdrawn key is accepted
 * for at most 10 minutes, or for 24 hours while the provider is unreachable.
 *
 * An accepted token is remembered until it expires or the keys change. At most half of the
 * processors verify tokens.
 *
 * @throws {TypeError} If `issuer` or `audience` is missing: tokens for other services would be
 *   accepted. If `algorithms` is empty, or has an unsupported one, such as HMAC. If `scope` or one
 *   of `subjects` cannot be used.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { jwtAuthenticator } from "plant-store";
 *
 * const authenticate = jwtAuthenticator({
 *   jwksUrl: new URL("https://id.example.com/jwks"),
 *   issuer: "https://id.example.com/",
 *   audience: "plant-store",
 * });
 *
 * assert.deepEqual(await authenticate("no-jwt"), { ok: false, reason: "not a signed JWT" });
 * ```
 */
export function jwtAuthenticator(options: JwtOptions): JwtAuthenticator {
  const { now = Date.now, jwksUrl, fetch, timeoutMs, ...others } = options;
  const { onKeysUnavailable, onKeysFetched, monotonic, ...own } = others;
  requireRules(own);

  const algorithms = allNamesOf(options.algorithms ?? JWT_ALGORITHMS);
  const rules: JWTVerifyOptions = {
    algorithms,
    audience: options.audience,
    issuer: options.issuer,
    requiredClaims: ["exp"],
    clockTolerance: CLOCK_SKEW_SECONDS,
  };

  const onKeys = { onKeysUnavailable, onKeysFetched };
  const keys = providerKeys({ jwksUrl, fetch, timeoutMs, ...onKeys, monotonic });
  // Not every runtime has it.
  const processors = globalThis.navigator?.hardwareConcurrency ?? 2;
  const withPermit = semaphore(Math.max(1, Math.floor(processors / 2)));
  /** Accepted tokens by digest, oldest first. */
  const remembered = new Map<string, RememberedToken>();
  /** Tokens that wait for keys, or to be verified, by digest. */
  const inFlight = new Map<string, Promise<Verdict>>();
  let verifying = 0;

  async function verify(
    token: string,
    digest: string,
    header: JWTHeaderParameters,
  ): Promise<Verdict> {
    try {
      const found = await keys.find(header);
      if (typeof found === "string") return refused(found);

      const { payload, generation } = await verifySignature(token, found).catch((error) => {
        // A new key may have the id of the old one, or none.
        if (hasNotSigned(error)) void keys.fetchAgain();
        throw error;
      });

      const other = otherTypeOf(payload);
      if (other !== undefined) return refused(`${other}, not an access token`);

      const verdict = verdictOn(payload, options);
      const expiresAt = ((payload.exp ?? 0) + CLOCK_SKEW_SECONDS) * 1_000;
      remember(digest, { verdict, expiresAt, generation });
      return verdict;
    } catch (error) {
      // Anything else is not a verdict: after a 401, a client would discard its token.
      if (!(error instanceof errors.JOSEError)) throw error;
      return refused(refusalOf(error, options));
    } finally {
      inFlight.delete(digest);
    }
  }

  function remember(digest: string, token: RememberedToken): void {
    // Delete first: the entry becomes the newest.
    remembered.delete(digest);
    remembered.set(digest, token);

    const [oldest = digest] = remembered.keys();
    if (remembered.size > MAX_REMEMBERED) remembered.delete(oldest);
  }

  async function verifySignature(token: string, { generation, ...found }: FoundKeys) {
    if (verifying >= MAX_WAITING) throw tooManyWait("to be verified");
    verifying++;
    try {
      const current = () => ({ ...rules, currentDate: new Date(now()) });
      const payload = await withPermit(() => verifyWith(token, found, current()));
      return { payload, generation };
    } finally {
      verifying--;
    }
  }

  function authenticate(token: string): Verdict | Promise<Verdict> {
    if (token.length > MAX_JWT_LENGTH) return refused("too long");
    const parts = token.split(".", 6).length;
    // RFC 7516, section 7.1.
    if (parts === 5) return refused("an encrypted JWT, not a signed one");
    if (parts !== 3) return refused("not a signed JWT");

    const digest = hash("sha256", token, "base64");
    const known = remembered.get(digest);
    const isCurrent = known?.generation === keys.generation() && keys.areUsable();
    if (known !== undefined && isCurrent && now() < known.expiresAt) {
      void keys.refreshIfDue();
      return known.verdict;
    }

    const waiting = inFlight.get(digest);
    if (waiting !== undefined) return waiting;

    const header = readHeader(token, algorithms);
    if (typeof header === "string") return refused(header);

    const verdict = verify(token, digest, header);
    inFlight.set(digest, verdict);
    return verdict;
  }

  return Object.assign(authenticate, { refreshKeys: async () => keys.refreshIfDue() });
}

/**
 * Checks the options for programs in JavaScript: jose skips the check of a claim if the expected
 * value is undefined.
 *
 * @throws {TypeError} If an option cannot be used.
 */
function requireRules(rules: Omit<JwtOptions, keyof ProviderKeysOptions | "now">): void {
  const { algorithms, audience, issuer, scope, subjects, ...rest } = rules;
  requireNoMore(rest);

  for (const [name, value] of Object.entries({ issuer, audience })) {
    if (typeof value !== "string" || value === "")
      throw new TypeError(`Cannot accept JWTs: \`${name}\` is missing`);
  }

  if (algorithms !== undefined && !areAlgorithms(algorithms))
    throw new TypeError("Cannot accept JWTs: `algorithms` must be some of JWT_ALGORITHMS");

  if (scope !== undefined && !isScopeName(scope))
    throw new TypeError("Cannot accept JWTs: `scope` must be the name of one scope");

  if (subjects === undefined) return;
  const fault = Array.isArray(subjects) ? subjects.map(subjectFault).find(Boolean) : "no list";
  if (fault !== undefined || subjects.length === 0)
    throw new TypeError(`Cannot accept JWTs: \`subjects\`: ${fault ?? "none is listed"}`);
}

/** Returns why a text cannot be one of `subjects`; `undefined` if it can. */
export function subjectFault(subject: unknown): string | undefined {
  if (typeof subject !== "string" || subject === "") return "a subject is missing";

  const star = subject.indexOf("*");
  if (star === -1) return undefined;
  // Otherwise `repo:garden*` would also accept `repo:garden-of-strangers`.
  return star === subject.length - 1 && /[:/|]\*$/.test(subject)
    ? undefined
    : "`*` must be the last character, after a `:`, `/` or `|`";
}

function isListed(subject: string, listed: readonly string[]): boolean {
  return listed.some((one) =>
    one.endsWith("*") ? subject.startsWith(one.slice(0, -1)) : subject === one,
  );
}

function areAlgorithms(value: unknown): boolean {
  const known: readonly unknown[] = JWT_ALGORITHMS;
  return Array.isArray(value) && value.length > 0 && value.every((one) => known.includes(one));
}

/** `EdDSA` and `Ed25519` are two names of one algorithm (RFC 9864, section 2.2). */
function allNamesOf(algorithms: readonly JwtAlgorithm[]): JwtAlgorithm[] {
  const isEd25519 = algorithms.some((name) => name === "EdDSA" || name === "Ed25519");
  return isEd25519 ? [...algorithms, "EdDSA", "Ed25519"] : [...algorithms];
}

/**
 * Returns the header of a token, or why the token is refused. Uses neither a key nor the signature.
 */
function readHeader(token: string, algorithms: readonly string[]): JWTHeaderParameters | string {
  if (!COMPACT.test(token)) return "not a signed JWT";
  const header = parseHeader(token.slice(0, token.indexOf(".")));
  if (header === undefined) return "malformed";

  const { alg, crit, kid, typ } = header;
  if (typeof alg !== "string" || !algorithms.includes(alg)) return "algorithm not accepted";
  if (typ !== undefined && !(typeof typ === "string" && TYPE.test(typ))) return "type not accepted";
  // RFC 7515, section 4.1.11: this service supports no extensions.
  if (crit !== undefined || !(kid === undefined || typeof kid === "string")) return "malformed";
  return kid === undefined ? { alg } : { alg, kid };
}

/**
 * The longest JWT, in characters: Bun takes 16 KiB of headers, and other headers need some. A token
 * with 200 groups, Microsoft Entra's maximum, has 12,000.
 */
const MAX_JWT_LENGTH = 14_336;

/**
 * Matches the compact serialization (RFC 7515, section 7.1). A token of `none` has an empty
 * signature.
 */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * Matches the types of accepted tokens (RFC 8725, section 3.11; RFC 9068, section 2.1). Many
 * providers send `JWT` or no type, and SPIFFE `JOSE`.
 */
const TYPE = /^(?:application\/)?(?:(?:at\+)?jwt|jose)$/i;

/**
 * Matches a header with more than eight arrays and objects. Each costs the parser as much as
 * hundreds of characters, and an attacker needs no key to send them.
 */
const TOO_MANY_CONTAINERS = /^(?:[^[{]*[[{]){9}/;

function parseHeader(encoded: string): Record<string, unknown> | undefined {
  try {
    const text = UTF8.decode(base64url.decode(encoded));
    if (TOO_MANY_CONTAINERS.test(text)) return undefined;
    const header: unknown = JSON.parse(text);
    return isObject(header) ? header : undefined;
  } catch {
    return undefined;
  }
}

const UTF8 = new TextDecoder();

/**
 * How many accepted tokens are remembered, in 2 MB. Refused tokens are not: a flood of them would
 * evict the accepted ones.
 */
const MAX_REMEMBERED = 10_000;

/** How many tokens may wait to be verified. The slowest, 2 ms each, take 2 seconds together. */
const MAX_WAITING = 1_000;

const CLOCK_SKEW_SECONDS = 30;

/**
 * Limits how many tasks run at once. The others wait in order (FIFO); the caller bounds how many
 * may wait.
 *
 * @param permits How many tasks may run at once.
 * @returns A function that runs a task once a permit is free, and settles as the task does.
 */
function semaphore(permits: number) {
  const waiting: (() => void)[] = [];
  let free = permits;

  return async <Result>(task: () => Promise<Result>): Promise<Result> => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));

    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free++;
      else next();
    }
  };
}

/**
 * Verifies a token with the key that it names, or else with each matching key in turn.
 *
 * @throws {JOSEError} If no key has signed the token, or a claim is wrong.
 */
async function verifyWith(
  token: string,
  { keys, hasMore }: Omit<FoundKeys, "generation">,
  rules: JWTVerifyOptions,
): Promise<JWTPayload> {
  for (const key of keys) {
    try {
      const { payload } = await usingKey(() => jwtVerify(token, key, rules));
      return payload;
    } catch (error) {
      if (!hasNotSigned(error)) throw error;
    }
  }

  throw hasMore
    ? new errors.JWKSMultipleMatchingKeys()
    : new errors.JWSSignatureVerificationFailed();
}

/** Whether an error means that none of the tried keys has signed the token. */
function hasNotSigned(error: unknown): boolean {
  return (
    error instanceof errors.JWSSignatureVerificationFailed ||
    error instanceof errors.JWKSMultipleMatchingKeys
  );
}

/**
 * Returns the type of a token that is not for an API (RFC 8725, section 3.12). Uses the claims of
 * Keycloak (`typ`), of Cognito (`token_use`), of Django's Simple JWT (`token_type`), and of OpenID
 * Connect Core, section 3.1.3.6 and 3.3.2.11.
 */
function otherTypeOf(payload: JWTPayload): string | undefined {
  if ("at_hash" in payload || "c_hash" in payload) return OTHER_TYPES.get("id");
  const { typ, token_use: use, token_type: type } = payload;
  return [typ, use, type].map((name) => OTHER_TYPES.get(String(name).toLowerCase())).find(Boolean);
}

/** Tokens for clients or for the provider itself, which it signs with the same keys. */
const OTHER_TYPES: ReadonlyMap<string, string> = new Map([
  ["id", "an ID token"],
  ["refresh", "a refresh token"],
  ["offline", "an offline token"],
  ["logout", "a logout token"],
]);

/** Returns the verdict on the claims of a token whose signature is valid. */
function verdictOn(payload: JWTPayload, rules: JwtOptions): Accepted {
  const { issuer, scope, subjects } = rules;
  const subject = typeof payload.sub === "string" ? payload.sub : "";
  const lacks = lackOf(payload, subject, { scope, subjects });
  if (lacks === undefined) return { ...accepted(subject), issuer };
  return { ...accepted(subject, []), issuer, lacks };
}

function lackOf(
  payload: JWTPayload,
  subject: string,
  { scope, subjects }: Pick<JwtOptions, "scope" | "subjects">,
): Lack | undefined {
  if (subjects !== undefined && !isListed(subject, subjects)) return { what: "a listed subject" };
  if (scope === undefined || isGranted(payload, scope)) return undefined;
  return { what: `the required scope "${scope}"`, scope };
}

/**
 * Whether a token has the required scope. RFC 8693, section 4.2, separates scopes by spaces.
 * Spring, IdentityServer and Okta send a list. Microsoft Entra sends `scp`, and only `roles` for a
 * daemon.
 */
function isGranted({ scope, scp, roles }: JWTPayload, required: string): boolean {
  const names = [scope, scp, roles].find((claim) => claim !== undefined);
  if (typeof names === "string") return names.split(" ").includes(required);
  return Array.isArray(names) && names.includes(required);
}

/** Returns why jose refuses a token. */
function refusalOf(error: errors.JOSEError, { issuer, audience }: JwtOptions): string {
  if (!(error instanceof errors.JWTClaimValidationFailed) || error.reason === "invalid")
    return REFUSALS[error.code] ?? "malformed";

  const { claim, payload } = error;
  if (claim === "iss") return `wrong issuer: ${expectedAndGot(issuer, payload.iss)}`;
  if (claim === "aud") return `wrong audience: ${expectedAndGot(audience, payload.aud)}`;
  return REFUSALS[claim] ?? "malformed";
}

/** Reasons by the missing or wrong claim, or else by jose's code. */
const REFUSALS: Readonly<Record<string, string>> = {
  exp: "no expiry",
  nbf: "not yet valid",
  [errors.JWKSMultipleMatchingKeys.code]: "ambiguous key",
  [errors.JWKSInvalid.code]: "unusable key",
  [errors.JWSSignatureVerificationFailed.code]: "bad signature",
  [errors.JWTExpired.code]: "expired",
};

/** The longest claim that the log quotes, in characters. */
const MAX_QUOTED = 200;

/** Quotes a claim safely: the provider has signed it, but a person may have chosen it. */
function expectedAndGot(expected: string, got: unknown): string {
  const text = got === undefined ? "none" : JSON.stringify(got).replace(/[^ -~]/g, "?");
  const quoted = text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text;
  return `expected ${JSON.stringify(expected)}, got ${quoted}`;
}

/** The remembered verdict on an accepted token. */
interface RememberedToken {
  readonly verdict: Verdict;
  /** In milliseconds since 1970 UTC. */
  readonly expiresAt: number;
  /** The generation of the keys that verified the token. */
  readonly generation: number;
}
