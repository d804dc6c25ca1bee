import { AUDIENCE, ISSUER, jwksServer, signed, signingKey } from "../support/jwt_provider.ts";
import { postBytes } from "../support/load.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { type Kind, type Sending, STORED } from "./odd_clients.ts";

/** An identity provider, and clients with its JWTs and with forged ones, to the end of the scope. */
export async function jwtClients() {
  const key = await signingKey("EdDSA");
  const forger = await signingKey("EdDSA", key.kid);
  const provider = jwksServer(key);

  function jwtBy(signer: typeof key): Promise<string> {
    const exp = Math.floor(Date.now() / 1_000) + 600;
    const claims = { iss: ISSUER, aud: AUDIENCE, exp, jti: crypto.randomUUID() };
    return signed(signer, claims);
  }

  return {
    /** The settings of a server that accepts them. */
    env: { AUTH_JWKS_URL: provider.url.href, AUTH_ISSUER: ISSUER, AUTH_AUDIENCE: AUDIENCE },

    kinds: ({ ask, store }: Sending): readonly Kind[] => [
      [
        "a forged JWT",
        4,
        10,
        /^401\/4012$/,
        async () => ask(postBytes(jsonOf(fern()), await jwtBy(forger))),
      ],
      [
        "a new JWT",
        2,
        20,
        STORED,
        () => store(async (plant) => ask(postBytes(plant, await jwtBy(key)))),
      ],
    ],

    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  };
}
