import {
  base64url,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
  type JWTPayload,
  SignJWT,
} from "jose";

import type { Verdict } from "../../src/auth/authenticate.ts";
import { jwtAuthenticator, type JwtOptions } from "../../src/auth/jwt/jwt.ts";
import { PlantStoreError, statusOf } from "../../src/errors.ts";
import { freePort } from "./program.ts";

/** The issuer that is accepted. */
export const ISSUER = "https://id.example.com/";
/** The audience that is accepted. */
export const AUDIENCE = "plant-store";
/** Seconds since the epoch at which every test begins. */
export const NOW = 2_000_000_000;
/** The claims of a good token. */
export const CLAIMS = { iss: ISSUER, aud: AUDIENCE, sub: "gardener", exp: NOW + 3_600 };

/** In milliseconds. */
export const SECONDS = 1_000;
/** In milliseconds. */
export const MINUTES = 60 * SECONDS;
/** In milliseconds. */
export const HOURS = 60 * MINUTES;

/** Turns text into bytes. */
export const UTF8 = new TextEncoder();

/** A provider with one key, an authenticator that follows it, and both of its clocks to set. */
export async function identityProvider(options: Partial<JwtOptions> = {}) {
  const key = await signingKey();
  const provider = jwksServer(key);
  const causes: unknown[] = [];
  let now = NOW;
  let elapsed = 0;

  const authenticate = jwtAuthenticator({
    jwksUrl: provider.url,
    issuer: ISSUER,
    audience: AUDIENCE,
    now: () => now * 1_000,
    monotonic: () => elapsed,
    onKeysUnavailable: (cause) => causes.push(cause),
    ...options,
  });

  /** `true` for a token that is accepted, else why it is not; a promise only where there is one. */
  const check = (token: string) => {
    const verdict = authenticate(token);
    return verdict instanceof Promise ? verdict.then(reasonOf, whyNow) : reasonOf(verdict);
  };

  return {
    key,
    provider,
    authenticate,
    check,
    causes,
    /** The verdict on a token: `true`, or why it is refused. */
    verdict: async (token: string | Promise<string>) => check(await token),
    /** Sets the time of day, in seconds since the epoch. */
    setTime: (seconds: number) => {
      now = seconds;
    },

    /** Lets cached keys age. */
    advance: (milliseconds: number) => {
      elapsed += milliseconds;
    },

    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
}

function reasonOf(verdict: Verdict): true | string {
  return verdict.ok || verdict.reason;
}

/** Why a token could not be checked now, if that is for want of keys. */
function whyNow(error: unknown): string {
  if (!(error instanceof PlantStoreError) || error.reason === undefined) throw error;
  return `${statusOf(error.code)}: ${error.reason}`;
}

/** A key that an identity provider signs with, and its public half as a JWK. */
export type SigningKey = Awaited<ReturnType<typeof signingKey>>;

/** A key with an id of its own. All RSA keys are one: making it takes longer than most tests. */
export async function signingKey(alg = "ES256", kid: string = crypto.randomUUID()) {
  const isRsa = /^[RP]S/.test(alg);
  const pair = isRsa ? await (rsa ??= newPair("RS256")) : await newPair(alg);

  // A CryptoKey of RSA is for one algorithm.
  const privateKey = isRsa
    ? await importJWK(await exportJWK(pair.privateKey), alg)
    : pair.privateKey;
  const jwk: JWK = { ...(await exportJWK(pair.publicKey)), kid, alg, use: "sig" };

  return { kid, alg, privateKey: privateKey as CryptoKey, jwk };
}

let rsa: Promise<CryptoKeyPair> | undefined;
const newPair = (alg: string) => generateKeyPair(alg, { extractable: true });

/** Signs claims as a provider does; header members given replace its own, `undefined` removes one. */
export function signed(
  key: SigningKey,
  claims: JWTPayload,
  header: Record<string, unknown> = {},
): Promise<string> {
  return new SignJWT(claims)
    .setProtectedHeader({ alg: key.alg, kid: key.kid, ...header })
    .sign(key.privateKey);
}

/** A token with this header, which no key signed. */
export function unsigned(header: Record<string, unknown>): string {
  return [JSON.stringify(header), JSON.stringify(CLAIMS), "signature"]
    .map((part) => base64url.encode(part))
    .join(".");
}

/** What a provider answers instead of its keys. */
export type CannedResponse = () => Response | Promise<Response>;

/**
 * A local identity provider that publishes keys, and can fail in every way. It is gone at the end
 * of the scope.
 */
export function jwksServer(...keys: readonly SigningKey[]) {
  let requests = 0;
  let held: { readonly asked: () => void; readonly released: Promise<void> } | undefined;
  let response = jwkSet(keys.map(({ jwk }) => jwk));
  // While it is away, the kernel gives no other test its port.
  const port = freePort();
  let server = serve();

  function serve() {
    return Bun.serve({
      hostname: "127.0.0.1",
      port,
      async fetch() {
        requests++;
        held?.asked();
        await held?.released;
        return response();
      },
    });
  }

  return {
    url: new URL("/jwks", server.url),
    /** How many requests came so far. */
    requests: () => requests,
    /** From now on answers these keys, and no others. */
    publish: (...keys: readonly (SigningKey | JWK)[]) => {
      response = jwkSet(keys.map((key) => ("privateKey" in key ? (key as SigningKey).jwk : key)));
    },

    /** From now on answers something else. */
    responses: (other: CannedResponse) => {
      response = other;
    },

    /**
     * From now on answers nothing until `release` is called; `asked` resolves when the first
     * request is there.
     */
    hold() {
      const asked = Promise.withResolvers<void>();
      const released = Promise.withResolvers<void>();
      held = { asked: asked.resolve, released: released.promise };
      return { asked: asked.promise, release: released.resolve };
    },

    /** Goes away: nobody listens. */
    leave: () => server.stop(true),
    /** Comes back where it was. */
    comeBack: () => {
      server = serve();
    },

    async [Symbol.asyncDispose]() {
      await server.stop(true);
    },
  };
}

function jwkSet(keys: readonly JWK[]): CannedResponse {
  return () => Response.json({ keys }, { headers: { "content-type": "application/jwk-set+json" } });
}
