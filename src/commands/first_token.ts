import type { Logger } from "@logtape/logtape";
import { sha256 } from "../adapters/sha256.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { mintToken } from "../auth/tokens.ts";
import { SCOPES } from "../scopes.ts";
import type { Config } from "./config.ts";
import type { Io } from "./io.ts";

/** What {@linkcode offerFirstToken} needs to know of the server. */
export interface FirstTokenOptions extends Pick<Config, "jwt" | "production"> {
  /** Where it listens. */
  readonly address: string;
  readonly io: Pick<Io, "stderr">;
  readonly log: Logger;
}

/**
 * Makes a token where none is accepted, nor JWTs: stores its digest, and prints it, only now, with a call that works
 * unchanged. In production nothing is made; a warning says what to do.
 */
export async function offerFirstToken(tokens: TokenCache, options: FirstTokenOptions): Promise<void> {
  const { address, jwt, production, io, log } = options;
  if (jwt !== undefined || tokens.size() > 0) return;
  const token = production ? undefined : await createFirstToken(tokens);
  if (token !== undefined) io.stderr(welcome(token, address));
  // Of two servers that start together on a new file, the slower one has read the token of the other by now.
  else if (tokens.size() === 0) log.warning(WARNING);
}

/** Resolves to nothing where the name is taken: by a server that starts at the same time, or by an old token. */
async function createFirstToken(tokens: TokenCache): Promise<string | undefined> {
  const token = mintToken(sha256);
  const added = await tokens.add({
    name: "first-start",
    digest: sha256(token),
    createdAt: new Date(),
    expiresAt: null,
    scopes: SCOPES,
  });
  return added ? token : undefined;
}

const WARNING =
  "No token is accepted, so every call will be answered 401: create one with plant-store token create NAME";

function welcome(token: string, address: string): string {
  return `
No token is accepted yet, so here is one. It is shown only now; the database keeps its SHA-256:

  ${token}

Store a plant:

  curl -i ${address}/plants -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d '{"id": 1, "name": "Monstera deliciosa", "tag": "indoor"}'

`;
}
