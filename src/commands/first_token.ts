import { SCOPES } from "../scopes.ts";
import type { Config } from "./config.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { mintToken, type Sha256 } from "../auth/tokens.ts";
import type { Io } from "./io.ts";

/**
 * At a first start nobody could call: makes a token, keeps its digest and prints it, this once, with a call that works
 * as it stands. In production nothing is made; a warning says what to do.
 *
 * @param address Where the server listens.
 */
export async function offerFirstToken(
  tokens: TokenCache,
  address: string,
  { jwt, production }: Config,
  sha256: Sha256,
  { stderr }: Io,
): Promise<void> {
  if (tokens.size() > 0 || jwt !== undefined) return;
  if (production) {
    stderr("No token is known, so every call will be answered 401: create one with plant-store token create NAME\n");
    return;
  }
  const token = mintToken(sha256);
  // Of two servers that start together on a new file, the slower one finds the name taken.
  const added = await tokens.add({
    name: "first-start",
    digest: sha256(token),
    createdAt: new Date(),
    expiresAt: null,
    scopes: SCOPES,
  });
  if (added) stderr(welcome(token, address));
}

function welcome(token: string, address: string): string {
  return `
No token is known, so here is one. It is shown only now; the database keeps its SHA-256:

  ${token}

Store a plant:

  curl -i ${address}/plants -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d '{"id": 1, "name": "Monstera deliciosa", "tag": "indoor"}'

`;
}
