import { decodeProtectedHeader, errors, jwtVerify } from "jose";
import { ACCEPTED, type Authenticate, refused, type Verdict } from "./authenticate.ts";
import { KeysUnavailable, remoteJwks, type RemoteJwksOptions } from "./jwks.ts";

/** Which JSON Web Tokens {@linkcode jwtAuthenticator} accepts, and its surroundings. */
export interface JwtOptions extends RemoteJwksOptions {
  /** What `iss` has to be, to the character. */
  readonly issuer: string;
  /** What `aud` has to be or to hold, to the character. */
  readonly audience: string;
  /** By which time tokens begin and end. @default the system's */
  readonly clock?: () => Date;
}

/** Why a token is refused: the closed list. None of it holds anything of the token. */
type Refusal =
  | "too long"
  | "not a JWT"
  | "malformed"
  | "algorithm not accepted"
  | "type not accepted"
  | "keys unavailable"
  | "unknown key"
  | "ambiguous key"
  | "unusable key"
  | "bad signature"
  | "wrong issuer"
  | "wrong audience"
  | "no expiry"
  | "expired"
  | "not yet valid";

/**
 * Accepts the JSON Web Tokens (RFC 7519) that an identity provider signs for this service, by the rules of RFC 8725:
 * asymmetric signatures only, `iss`, `aud` and `exp` required, `nbf` honoured, 30 seconds of clock skew.
 *
 * Keys are fetched when first needed, again in the background once they were confirmed more than 5 minutes ago, and at
 * once for a key that is not known; at most every 10 seconds, whatever tokens come. While the provider is away, the
 * keys it was last seen with count for 24 hours, and no others do. While it is there, a key that it withdrew counts for
 * at most 10 minutes.
 *
 * @returns Judges a token. It never throws, and gives no promise where
 * the token's form is enough to refuse it.
 *
 * @example
 * ```ts
 * const authenticate = jwtAuthenticator({
 *   jwksUrl: new URL("https://id.example.com/jwks"),
 *   issuer: "https://id.example.com/",
 *   audience: "plant-store",
 * });
 * ```
 */
export function jwtAuthenticator(options: JwtOptions): Authenticate {
  const { issuer, audience, clock = () => new Date() } = options;
  const rules = { algorithms: ALGORITHMS, issuer, audience, requiredClaims: ["exp"], clockTolerance: 30 };
  const key = remoteJwks(options);

  async function verify(token: string): Promise<Verdict> {
    try {
      await jwtVerify(token, key, { ...rules, currentDate: clock() });
      return ACCEPTED;
    } catch (error) {
      return refused(refusalOf(error));
    }
  }

  return (token) => {
    const refusal = rejectByHeader(token);
    return refusal === undefined ? verify(token) : refused(refusal);
  };
}

/** RFC 8725, section 3.1. Neither `none` nor HMAC, for which a public key would be the secret. */
const ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519".split(" ");

/**
 * RFC 8725, section 3.11: tokens made for something else say so here. Access tokens say `at+jwt` (RFC 9068, section
 * 2.1), but many providers `JWT` or nothing. The prefix may be left out (RFC 7515, section 4.1.9).
 */
const TYPE = /^(?:application\/)?(?:at\+)?jwt$/i;

/** RFC 7515, section 7.1; an empty signature is one of `none`. */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/** In characters. Servers take headers of 8 to 16 KiB, so a longer token works nowhere. */
const MAX_TOKEN_LENGTH = 8_192;

/** What costs neither a key nor a signature to know. */
function rejectByHeader(token: string): Refusal | undefined {
  if (token.length > MAX_TOKEN_LENGTH) return "too long";
  if (!COMPACT.test(token)) return "not a JWT";
  const header = protectedHeader(token);
  if (header === undefined) return "malformed";
  const { alg, typ, kid } = header;
  if (typeof alg !== "string" || !ALGORITHMS.includes(alg)) return "algorithm not accepted";
  if (typ !== undefined && !(typeof typ === "string" && TYPE.test(typ))) return "type not accepted";
  return kid === undefined || typeof kid === "string" ? undefined : "malformed";
}

function protectedHeader(token: string): Record<string, unknown> | undefined {
  try {
    return decodeProtectedHeader(token);
  } catch {
    return undefined;
  }
}

const BY_CODE: Readonly<Record<string, Refusal>> = {
  [errors.JWKSNoMatchingKey.code]: "unknown key",
  [errors.JWKSMultipleMatchingKeys.code]: "ambiguous key",
  [errors.JWKSInvalid.code]: "unusable key",
  [errors.JWSSignatureVerificationFailed.code]: "bad signature",
  [errors.JWTExpired.code]: "expired",
};

const BY_CLAIM: Readonly<Record<string, Refusal>> = {
  "iss missing": "wrong issuer",
  "iss check_failed": "wrong issuer",
  "aud missing": "wrong audience",
  "aud check_failed": "wrong audience",
  "exp missing": "no expiry",
  "nbf check_failed": "not yet valid",
};

function refusalOf(error: unknown): Refusal {
  if (error instanceof KeysUnavailable) return "keys unavailable";
  if (error instanceof errors.JWTClaimValidationFailed)
    return BY_CLAIM[`${error.claim} ${error.reason}`] ?? "malformed";
  if (error instanceof errors.JOSEError) return BY_CODE[error.code] ?? "malformed";
  // A key that Web Cryptography or jose cannot use for the algorithm: a plain TypeError or DOMException.
  return "unusable key";
}
