import type { OnWarning } from "../database/adapter.ts";
import { readStaticTokens } from "../settings/secret_files.ts";
import type { Config } from "../settings/settings.ts";
import { HttpServer, PortError } from "./http_server.ts";
import { providerFault } from "./jwt_provider.ts";
import { loadTracing, requireSafePlace } from "./service.ts";

/**
 * Checks, without starting, whether a start would fail: checks the settings and their files, the
 * address and the port, and the database. Neither creates nor migrates the database. The server may
 * be running.
 *
 * @param onWarning Receives a sentence about a problem that does not prevent a start, such as an
 *   unreachable identity provider. A port in use is one, because it may be the running server's.
 * @returns A sentence about the effect of a start on the database.
 * @throws {ConfigError} If a file or a variable cannot be used.
 * @throws {CommandError} If this machine does not have the address, or, in production, the database
 *   could be lost.
 * @throws {DatabaseError} If the database cannot be opened.
 */
export async function checkStart(
  config: Config,
  onWarning: (sentence: string) => void,
): Promise<string> {
  const server = new HttpServer(config, AbortSignal.abort());
  await Promise.all([readStaticTokens(config), server.loadCertificate()]);
  const tracing = await loadTracing(config, (message, { reason, variables }) =>
    onWarning(`${message}: ${reason ?? variables}`),
  );
  await tracing?.close();
  const fault = await providerFault(config);
  if (fault !== undefined) onWarning(fault);
  await requireSafePlace(config, onWarning);

  // As a start does, with the rights of the database's owner: root becomes that user.
  const verdict = await checkDatabase(config, (message, { reason } = {}) =>
    onWarning(reason === undefined ? message : `${message}: ${reason}`),
  );
  await tryToListen(server).catch((refusal: unknown) => {
    // The running server may use the port, and its unit may have the right to a port below 1024.
    if (!(refusal instanceof PortError)) throw refusal;
    onWarning(`${refusal.message}, unless the running server has this port`);
  });
  return verdict;
}

async function checkDatabase(
  { database, production }: Config,
  onWarning: OnWarning,
): Promise<string> {
  const pending = (await database.migrate({ dryRun: true })).map(({ tag }) => tag);
  // drizzle-kit numbers migrations: the first one is pending only where no database exists.
  const isNew = pending[0]?.startsWith("0000_") === true;

  if (pending.length > 0 && !(isNew && production)) {
    await database.requireMigratable();
    return isNew
      ? `A start creates the database "${database.name}"`
      : `A start migrates the database "${database.name}": ${pending.join(", ")}`;
  }

  // Opens it as commands that write do: in production, that refuses a database that does not exist.
  await using _ = await database.openForWriting({ onWarning });
  return `The database "${database.name}" is up to date`;
}

/** Listens for a moment. */
async function tryToListen(server: HttpServer): Promise<void> {
  const respond = () => new Response(null, { status: 503 });
  try {
    server.listen({ fetch: respond, error: respond });
  } finally {
    await server.stop(0);
  }
}
