import type { Logger } from "@logtape/logtape";

import { SCOPES } from "../auth/authenticate.ts";
import type { TokenCache } from "../auth/token_cache.ts";
import { mintToken } from "../auth/token_format.ts";
import type { DatabaseAdapter } from "../database/adapter.ts";
import { reasonOfRefusal } from "../database/refusals.ts";
import type { Config } from "../settings/settings.ts";

/** The stderr to print the first token to. */
export interface TokenTerminal {
  readonly stderr: (text: string) => void;
  readonly isTerminal: boolean;
}

/** Options of {@linkcode offerFirstToken}. */
interface FirstTokenOptions extends Pick<Config, "production"> {
  /** The URL of the server. */
  readonly address: string;
  readonly database: Pick<DatabaseAdapter, "name" | "howToRun">;
  readonly terminal: TokenTerminal;
  readonly log: Logger;
}

const NAME = "first-start";

/** How long a first token that may be in a log is accepted, in milliseconds. */
const LIFETIME_MS = 86_400_000;

/**
 * Creates a token if there is none, and prints it once. If stderr is not a
 * terminal, it may be a log: then the token expires. In production, or if storage refuses, a
 * warning says what to do instead.
 */
export async function offerFirstToken(
  tokens: TokenCache,
  options: FirstTokenOptions,
): Promise<void> {
  const { production, database, terminal, log } = options;
  if (tokens.size() > 0) return;

  const create = database.howToRun("token create NAME");
  const { token, digest } = mintToken();
  const createdAt = new Date();
  const expiresAt = terminal.isTerminal ? null : new Date(createdAt.getTime() + LIFETIME_MS);
  const record = { name: NAME, digest, createdAt, expiresAt, scopes: SCOPES };

  try {
    // Not added if a server that starts at the same time, or an old token, has the name.
    if (!production && (await tokens.add(record)))
      return terminal.stderr(await welcome(token, options));

    // If two servers start together on a new file, the slower one has read the token of the other
    // by now.
    if (tokens.size() === 0)
      log.warning(`No token is accepted, so every call returns 401: ${create}`);
  } catch (error) {
    const reason = reasonOfRefusal(error);
    if (reason === undefined) throw error;

    const remove = database.howToRun(`token delete ${NAME}`);
    log.warning(
      `Cannot create the first token, so every call returns 401: ${create}. If a token named ${NAME} exists now, its secret was not shown: ${remove}`,
      { reason },
    );
  }
}

async function welcome(
  token: string,
  { address, database, terminal }: FirstTokenOptions,
): Promise<string> {
  // Imported here, so that a start does not wait for the framework: it is loaded by now.
  const { EXAMPLE } = await import("../http/plants.ts");
  const expiry = terminal.isTerminal ? "" : " It may be in a log now, so it expires in 24 hours.";
  const members = Object.entries(EXAMPLE).map(
    ([field, value]) => `"${field}": ${JSON.stringify(value)}`,
  );
  return `
Created token "${NAME}" in "${database.name}". Save it: it cannot be shown again.${expiry}

  ${token}

Store a plant:

  curl -i ${address}/plants -H 'Authorization: Bearer ${token}' -H 'Content-Type: application/json' -d '{${members.join(", ")}}'

`;
}
