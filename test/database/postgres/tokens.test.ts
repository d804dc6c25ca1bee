import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { openPostgres } from "../../../src/database/postgres/database.ts";
import { parsePostgresUrl } from "../../../src/database/postgres/url.ts";
import { sha256 } from "../../../src/auth/sha256.ts";
import { tokenCache } from "../../../src/auth/token_cache.ts";
import { mintToken } from "../../../src/auth/tokens.ts";
import { type PostgresCluster, skipsCluster } from "../../support/postgres.ts";
import { withEmptyDatabase } from "../../support/postgres_hooks.ts";
import { TEST_TIMEOUT_MS } from "../../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

describe.skipIf(skipsCluster())("tokens", () => {
  let cluster: PostgresCluster;
  let url: string;
  withEmptyDatabase((started, empty) => ([cluster, url] = [started, empty]));

  test("a revocation is seen after a failover that lost the change before it", async () => {
    await using database = await openPostgres(parsePostgresUrl(url));
    const { tokens } = database;
    const secrets = [mintToken(sha256), mintToken(sha256)] as const;
    const tokenOf = (index: 0 | 1) => ({
      name: `garden-${index}`,
      digest: sha256(secrets[index]),
      createdAt: new Date("2026-01-01T00:00:00.001Z"),
      expiresAt: null,
      scopes: [],
    });
    await tokens.add(tokenOf(0));
    const [before] = await cluster.run("SELECT revision FROM token_revision");
    await tokens.add(tokenOf(1));
    const cache = await tokenCache(tokens, { sha256 });
    expect(secrets.map((secret) => cache.authenticate(secret).ok)).toEqual([true, true]);
    // What a standby has that is promoted without the last change.
    await cluster.run(
      "DELETE FROM tokens WHERE name = 'garden-1'",
      `UPDATE token_revision SET revision = ${before?.["revision"]}`,
    );
    await tokens.revoke("garden-0", new Date("2026-01-01T00:00:01.001Z"));
    await cache.refresh();
    expect(secrets.map((secret) => cache.authenticate(secret).ok)).toEqual([false, false]);
  });
});
