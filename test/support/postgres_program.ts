import { TOKEN } from "./client.ts";
import { skipsCluster, startCluster } from "./postgres.ts";
import { startServer } from "./program.ts";

/** What the wire suite runs on: servers, each on a database of its own. */
export const PROGRAM_ON_POSTGRES = {
  name: "the program on PostgreSQL",
  kind: "bun",
  isTestApp: false,
  skips: skipsCluster,
  async prepare(stack: AsyncDisposableStack) {
    const cluster = stack.use(await startCluster());
    return async () => {
      const { url } = await cluster.newDatabase();
      return startServer({ env: { AUTH_TOKENS: TOKEN, DATABASE_URL: url } });
    };
  },
} as const;
