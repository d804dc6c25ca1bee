import { type JWTHeaderParameters, jwtVerify, type JWTVerifyOptions, type LocalJWKSet } from "jose";
import { PlantStoreError } from "../errors.ts";
import { accepted, ACCEPTED, type Authenticate, refused, type Verdict } from "./authenticate.ts";
import { type RemoteJwks, remoteJwks, type RemoteJwksOptions } from "./jwks.ts";
import { JWT_ALGORITHMS, type JwtAlgorithm, readHeader } from "./jwt_header.ts";
import { type JwtRefusal, refusalOf } from "./jwt_refusal.ts";
import { type Semaphore, semaphore } from "../async/semaphore.ts";
import { type Sha256 } from "./tokens.ts";

/** Which JSON Web Tokens {@linkcode jwtAuthenticator} accepts, and what it needs. */
export interface JwtOptions extends RemoteJwksOptions {
  /** What `iss` has to be, to the character. */
  readonly issuer: string;
  /** What `aud` has to be or to hold, to the character. */
  readonly audience: string;
  /**
   * What a token's `scope` has to hold, to the character (RFC 9068, section 2.2.3): the bearer of one that does not may
   * do nothing. @default every token may do everything
   */
  readonly scope?: string | undefined;
  /** Which algorithms signatures may have. @default all of {@linkcode JWT_ALGORITHMS} */
  readonly algorithms?: readonly JwtAlgorithm[] | undefined;
  readonly sha256: Sha256;
  /** The time at which tokens are validated. @default the system's */
  readonly clock?: () => Date;
}

/**
 * Accepts the JSON Web Tokens (RFC 7519) that an identity provider signs for this service, by the rules of RFC 8725:
 * asymmetric signatures only, `iss`, `aud` and `exp` required, `nbf` honoured, 30 seconds of clock skew.
 *
 * Keys are fetched when first needed, again in the background once they were confirmed more than 5 minutes ago, and at
 * once for a key that is not cached; at most every 10 seconds, whatever tokens come. While the provider cannot be
 * reached, the cached keys are used for 24 hours, and no others. While it can, a key that it withdrew is accepted for at
 * most 10 minutes.
 *
 * A token that was accepted is not verified again until it expires or the provider's keys change. One token at a time
 * is verified for every two processors, so that forged ones cannot slow down all other requests.
 *
 * @returns What validates a token. It returns no promise where the token is remembered, or its form is enough to refuse it. It
 * throws a {@linkcode PlantStoreError} `queue_full` when too many tokens wait for it, and nothing else.
 *
 * @example
 * ```ts
 * import assert from "node:assert/strict";
 * import { jwtAuthenticator, sha256 } from "plant-store";
 *
 * const authenticate = jwtAuthenticator({
 *   jwksUrl: new URL("https://id.example.com/jwks"),
 *   issuer: "https://id.example.com/",
 *   audience: "plant-store",
 *   sha256,
 * });
 *
 * assert.deepEqual(await authenticate("no-jwt"), { ok: false, reason: "not a JWT" });
 * ```
 */
export function jwtAuthenticator(options: JwtOptions): Authenticate {
  const { algorithms = JWT_ALGORITHMS, clock = () => new Date(), sha256 } = options;
  const state: State = {
    options,
    algorithms: JWT_ALGORITHMS.filter((algorithm) => algorithms.includes(algorithm)),
    clock,
    jwks: remoteJwks(options),
    accepted: new Map(),
    inFlight: new Map(),
    withPermit: semaphore(Math.max(1, Math.floor(navigator.hardwareConcurrency / 2))),
  };
  return (token) => {
    if (token.length > MAX_TOKEN_LENGTH) return refused("too long" satisfies JwtRefusal);
    const key = sha256(token, "base64");
    return recall(state, key) ?? state.inFlight.get(key) ?? verify(state, key, token);
  };
}

/** In characters. Servers take headers of 8 to 16 KiB, so a longer token would not arrive. */
const MAX_TOKEN_LENGTH = 8_192;

interface State {
  readonly options: JwtOptions;
  readonly algorithms: string[];
  readonly clock: () => Date;
  readonly jwks: RemoteJwks;
  /** Tokens that were accepted, by the digest of the token, the oldest first. */
  readonly accepted: Map<string, AcceptedJwt>;
  /** Tokens that are being verified or wait for it, by the digest of the token. */
  readonly inFlight: Map<string, Promise<Verdict>>;
  readonly withPermit: Semaphore;
}

/** A token that was accepted. */
interface AcceptedJwt {
  readonly verdict: Verdict;
  /** The provider's keys then: when it has others, the token has to be verified anew. */
  readonly keys: LocalJWKSet;
  /** When it expires, in milliseconds since 1970 UTC. */
  readonly expiresAt: number;
}

/** The verdict on a token that was accepted before, while it has not expired and the provider has the same keys. */
function recall({ accepted, clock, jwks }: State, key: string): Verdict | undefined {
  const known = accepted.get(key);
  if (known === undefined) return undefined;
  if (jwks.usable() === known.keys && clock().getTime() < known.expiresAt) return known.verdict;
  accepted.delete(key);
  return undefined;
}

/** How many accepted tokens are remembered, 2 MB of them. Refused ones are not: they would push out the accepted. */
const MAX_ACCEPTED = 10_000;

function remember({ accepted }: State, key: string, jwt: AcceptedJwt): void {
  accepted.set(key, jwt);
  if (accepted.size <= MAX_ACCEPTED) return;
  const [oldest = key] = accepted.keys();
  accepted.delete(oldest);
}

/** How many tokens may be in flight. The slowest signatures, 2 ms each, are verified within 2 seconds. */
const MAX_IN_FLIGHT = 1_000;

function verify(state: State, key: string, token: string): Verdict | Promise<Verdict> {
  const header = readHeader(token, state.algorithms);
  if (typeof header === "string") return refused(header);
  if (state.inFlight.size >= MAX_IN_FLIGHT) throw new PlantStoreError("queue_full", TOO_MANY);
  const verdict = verifySignature(state, key, token, header).finally(() => state.inFlight.delete(key));
  state.inFlight.set(key, verdict);
  return verdict;
}

const TOO_MANY = "too many JWTs wait to be verified; send the plant again later";

const CLOCK_SKEW_SECONDS = 30;

async function verifySignature(
  state: State,
  key: string,
  token: string,
  header: JWTHeaderParameters,
): Promise<Verdict> {
  try {
    const found = await state.jwks.find(header);
    const { payload } = await state.withPermit(() => jwtVerify(token, found.key, rulesOf(state)));
    const { exp = 0, scope } = payload;
    const verdict = holdsScope(scope, state.options.scope) ? ACCEPTED : WITHOUT_SCOPES;
    remember(state, key, { verdict, keys: found.keys, expiresAt: (exp + CLOCK_SKEW_SECONDS) * 1_000 });
    return verdict;
  } catch (error) {
    return refused(refusalOf(error));
  }
}

const WITHOUT_SCOPES = accepted([]);

/** RFC 8693, section 4.2: names with spaces between them. */
function holdsScope(scope: unknown, required: string | undefined): boolean {
  if (required === undefined) return true;
  return typeof scope === "string" && scope.split(" ").includes(required);
}

function rulesOf({ algorithms, clock, options }: State): JWTVerifyOptions {
  const { audience, issuer } = options;
  const time = { clockTolerance: CLOCK_SKEW_SECONDS, currentDate: clock() };
  return { algorithms, audience, issuer, requiredClaims: ["exp"], ...time };
}
