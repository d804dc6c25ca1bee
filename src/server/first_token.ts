import type { Logger } from "@logtape/logtape";
import { sha256 } from "../auth/sha256.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { mintToken } from "../auth/tokens.ts";
import { SCOPES } from "../auth/authenticate.ts";
import type { Config } from "../settings/config.ts";
import { reasonOfRefusal } from "../database/storage_refusal.ts";

/** What {@linkcode offerFirstToken} needs to know of the server. */
export interface FirstTokenOptions extends Pick<Config, "jwt" | "production"> {
  /** Where it listens. */
  readonly address: string;
  readonly terminal: {
    /** Takes a message for people. */
    readonly stderr: (text: string) => void;
    /** Whether it goes to a terminal. */
    readonly isTerminal: boolean;
  };
  readonly log: Logger;
}

/**
 * Creates a token if neither a token nor JWTs are accepted: stores its digest, and prints the token, only now, with a
 * call that works unchanged. If stderr is not a terminal, the token may get into a log, and expires. In production no
 * token is created, and if storage refuses it, it may or may not be stored: a warning says what to do.
 */
export async function offerFirstToken(tokens: TokenCache, options: FirstTokenOptions): Promise<void> {
  const { address, jwt, production, terminal, log } = options;
  if (jwt !== undefined || tokens.size() > 0) return;
  try {
    const token = production ? undefined : await createFirstToken(tokens, { expires: !terminal.isTerminal });
    if (token !== undefined) terminal.stderr(welcome(token, address, { expires: !terminal.isTerminal }));
    // Of two servers that start together on a new file, the slower one has read the token of the other by now.
    else if (tokens.size() === 0) log.warning(WARNING);
  } catch (error) {
    const reason = reasonOfRefusal(error);
    if (reason === undefined) throw error;
    log.warning(NOT_MADE, { reason });
  }
}

const NAME = "first-start";

/** How long a first token that may be in a log is accepted, in milliseconds. */
const LIFETIME_MS = 86_400_000;

/** Resolves to `undefined` if the name is taken: by a server that starts at the same time, or by an old token. */
async function createFirstToken(tokens: TokenCache, { expires }: { expires: boolean }): Promise<string | undefined> {
  const token = mintToken(sha256);
  const createdAt = new Date();
  const added = await tokens.add({
    name: NAME,
    digest: sha256(token),
    createdAt,
    expiresAt: expires ? new Date(createdAt.getTime() + LIFETIME_MS) : null,
    scopes: SCOPES,
  });
  return added ? token : undefined;
}

const WARNING =
  "No token is accepted, so every call will be answered 401: create one with plant-store token create NAME";

const NOT_MADE = `No first token could be made, so every call will be answered 401: create one with plant-store token create NAME. A token of the name ${NAME} may exist now although its secret was not shown: remove it with plant-store token delete ${NAME}`;

function welcome(token: string, address: string, { expires }: { expires: boolean }): string {
  const expiry = expires ? " This is not a terminal but may be a log, so it expires in 24 hours." : "";
  return `
No token is accepted yet, so here is one. It is shown only now; the database keeps its SHA-256.${expiry}

  ${token}

Store a plant:

  curl -i ${address}/plants -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d '{"id": 1, "name": "Monstera deliciosa", "tag": "indoor"}'

`;
}
