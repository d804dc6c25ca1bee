import type { Ledger } from "../support/ledger.ts";
import { startLoad } from "../support/load.ts";
import { type start, startServer, type StartOptions } from "../support/program.ts";

/** A re-send settles what is unknown: nothing else than stored or taken can come of it; then a clean end. */
export async function settle(options: StartOptions, ledger: Ledger): Promise<void> {
  await using server = await startServer(options);
  const unknown = ledger.unknown();
  const load = startLoad({ url: server.url, connections: 8, ledger, next: () => unknown.pop() });
  const { responses, unanswered } = await load.end;
  const others = Object.keys(responses).filter((response) => response !== "200" && response !== "409/4091");
  if (others.length > 0 || unanswered > 0) throw new Error(`Responses to re-sends: ${JSON.stringify(responses)}`);
  server.child.kill("SIGTERM");
  const exitCode = await server.child.exited;
  if (exitCode !== 0) throw new Error(`A clean end had exit code ${exitCode}`);
}

/** Where a program listens; nothing if it ends before. */
export async function urlOf({ stderr }: ReturnType<typeof start>): Promise<string | undefined> {
  const listening = await stderr.until(/listens on (http:\S+?)[,\s]/).catch(() => undefined);
  return listening?.[1];
}

/** How to start a program on a free port. */
export function onFreePort({ args = [], ...options }: StartOptions): StartOptions {
  return { args: ["--port", "0", ...args], ...options };
}
