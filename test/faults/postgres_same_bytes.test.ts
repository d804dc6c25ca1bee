import { setDefaultTimeout, test } from "bun:test";

import { MAX_IN_FLIGHT } from "../../src/database/postgres/postgres_database.ts";
import { parsePostgresUrl } from "../../src/database/postgres/url.ts";
import { skipsCluster, startCluster } from "../support/postgres.ts";
import { openPostgres } from "../support/postgres_database.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { expectSameBytes } from "./same_bytes.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test.skipIf(skipsCluster())(
  "PostgreSQL and memory give the same responses, byte for byte, and keep the same plants",
  async () => {
    await using cluster = await startCluster();
    await using database = await openPostgres(parsePostgresUrl(await cluster.emptyDatabase()));
    await expectSameBytes(database, MAX_IN_FLIGHT);
  },
);
