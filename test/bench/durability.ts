import { withDeadline } from "../../src/async/deadline.ts";
import { post } from "../support/client.ts";
import { startServer } from "../support/program.ts";
import { makeDisk, skipsShim } from "../support/shim.ts";
import type { Contender } from "./contenders.ts";
import { stop } from "./run_load.ts";

/** Whether {@linkcode requireFsync} can be asked here. Says so once. */
export const canRequireFsync = !skipsShim();

/**
 * Refuses a contender that answers 200 without having synced: on a disk whose fsync fails it must not.
 *
 * @throws {Error} If it does, or does not work on a disk that is well.
 */
export async function requireFsync({ name, program, env = {} }: Contender): Promise<void> {
  stop.signal.throwIfAborted();
  using disk = makeDisk({ shim: true });
  await using server = await startServer(disk.server({ program, env }));
  const well = await post(server.url, { id: 1, name: "Fern" });
  if (well.status !== 200) throw new Error(`${name} answered ${well.status} to a plant`);
  disk.raise("fail-sync");
  const response = post(server.url, { id: 2, name: "Ivy" }).catch(() => undefined);
  const sick = await withDeadline(response, 2_000, () => undefined);
  if (sick?.status === 200) throw new Error(`${name} answers 200 without an fsync, so it is not compared`);
}
