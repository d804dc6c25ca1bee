import { errors } from "jose";
import { KeysUnavailable } from "./jwks.ts";

/** Why a token is refused: the closed list. None of it holds anything of the token. */
export type JwtRefusal =
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

/** Why a token is refused, by the error that its verification threw. */
export function refusalOf(error: unknown): JwtRefusal {
  if (error instanceof KeysUnavailable) return "keys unavailable";
  if (error instanceof errors.JWTClaimValidationFailed)
    return BY_CLAIM[`${error.claim} ${error.reason}`] ?? "malformed";
  if (error instanceof errors.JOSEError) return BY_CODE[error.code] ?? "malformed";
  // A key that Web Cryptography or jose cannot use for the algorithm: a plain TypeError or DOMException.
  return "unusable key";
}

const BY_CODE: Readonly<Record<string, JwtRefusal>> = {
  [errors.JWKSNoMatchingKey.code]: "unknown key",
  [errors.JWKSMultipleMatchingKeys.code]: "ambiguous key",
  [errors.JWKSInvalid.code]: "unusable key",
  [errors.JWSSignatureVerificationFailed.code]: "bad signature",
  [errors.JWTExpired.code]: "expired",
};

const BY_CLAIM: Readonly<Record<string, JwtRefusal>> = {
  "iss missing": "wrong issuer",
  "iss check_failed": "wrong issuer",
  "aud missing": "wrong audience",
  "aud check_failed": "wrong audience",
  "exp missing": "no expiry",
  "nbf check_failed": "not yet valid",
};
