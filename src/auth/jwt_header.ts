import { base64url, decodeProtectedHeader, type JWTHeaderParameters } from "jose";
import { hasMoreOpenings } from "../plant/json_depth.ts";
import type { JwtRefusal } from "./jwt_refusal.ts";

const RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] as const;
const ELLIPTIC_CURVES = ["ES256", "ES384", "ES512", "EdDSA", "Ed25519"] as const;

/**
 * What may sign a JWT (RFC 8725, section 3.1): neither `none` nor HMAC, for which a public key would be the secret.
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

/**
 * Reads a token's header.
 *
 * @returns The header, or why the token is refused: what costs neither a key nor a signature to know.
 */
export function readHeader(token: string, algorithms: readonly string[]): JWTHeaderParameters | JwtRefusal {
  if (!COMPACT.test(token)) return "not a JWT";
  const header = protectedHeader(token);
  if (header === undefined) return "malformed";
  const { alg, crit, kid, typ } = header;
  if (typeof alg !== "string" || !algorithms.includes(alg)) return "algorithm not accepted";
  if (typ !== undefined && !(typeof typ === "string" && TYPE.test(typ))) return "type not accepted";
  // RFC 7515, section 4.1.11: no extension is understood here.
  if (crit !== undefined || !(kid === undefined || typeof kid === "string")) return "malformed";
  return kid === undefined ? { alg } : { alg, kid };
}

/**
 * RFC 8725, section 3.11: tokens made for something else say so here. Access tokens say `at+jwt` (RFC 9068, section
 * 2.1), but many providers `JWT` or nothing. The prefix may be left out (RFC 7515, section 4.1.9).
 */
const TYPE = /^(?:application\/)?(?:at\+)?jwt$/i;

/** RFC 7515, section 7.1; an empty signature is one of `none`. */
const COMPACT = /^[\w-]+\.[\w-]+\.[\w-]*$/;

/**
 * How many arrays and objects a header may have: itself, a `jwk`, an `x5c` (RFC 7515, section 4.1), and some to spare. Each
 * can cost a parser as much as hundreds of characters, and 8 kB of memory; who sends it needs no key for that.
 */
const MAX_CONTAINERS = 8;

function protectedHeader(token: string): Record<string, unknown> | undefined {
  try {
    const text = utf8.decode(base64url.decode(token.slice(0, token.indexOf("."))));
    return hasMoreOpenings(text, MAX_CONTAINERS) ? undefined : decodeProtectedHeader(token);
  } catch {
    return undefined;
  }
}

const utf8 = new TextDecoder();
