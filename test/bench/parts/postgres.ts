import { skipsCluster, startCluster } from "../../support/postgres.ts";
import { ours } from "../contenders.ts";
import { GOALS } from "../goals.ts";
import type { Section } from "../report.ts";
import type { Rounds } from "../rounds.ts";
import { pairs } from "./pairs.ts";

/** What a plant costs the server on PostgreSQL, beside SQLite; `postgres.ts` has more of it. */
export async function postgres(rounds: Rounds): Promise<Section> {
  const title = "PostgreSQL beside SQLite";
  const about = "CPU of the server for a plant at 64 connections, random ids.";
  if (skipsCluster())
    return { title, about, columns: [], rows: [], missing: ["PostgreSQL: npm has none for this system"] };
  await using cluster = await startCluster({
    disk: "disk",
    settings: { max_wal_size: "2GB", shared_buffers: "256MB" },
  });
  const count = async () => Number((await cluster.run("SELECT count(*) AS plants FROM plants"))[0]?.["plants"]);
  return await pairs(
    {
      title,
      about,
      contenders: [
        ours({ name: "SQLite", ids: "random" }),
        ours({ name: "PostgreSQL", ids: "random", env: { DATABASE_URL: cluster.url("postgres") }, count }),
      ],
      load: { connections: 64 },
      figure: ({ cpuMicros }) => cpuMicros,
      unit: "CPU µs/plant",
      limit: GOALS.postgres,
    },
    rounds,
  );
}
