import type { RestoredTokens } from "../database/adapter.ts";
import { CommandError, isSystemError, reasonOf } from "../errors.ts";
import { DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { counted, formatBytes, namesOf } from "./formatting.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import { warningsTo } from "./terminal.ts";

const HELP = `
On SQLite, stop the server first: restore refuses a database that a process has
open, and keeps the old files. On PostgreSQL the database must have no plants
and no tokens: make a new one.`;

/**
 * `plant-store restore`: changes nothing unless the whole backup is sound, and no process has the
 * database open.
 */
export const restore: Subcommand = {
  usage: "restore <backup>",
  description: "Restore the database from a backup",
  flags: [JSON_FLAG, ...DATABASE_FLAGS],
  help: () => HELP,
  example: "restore plants-2026-11-23T000000Z.db",
  async run({ argument: source, flags, adapter, io }) {
    const database = await adapter();
    try {
      const options = { stop: io.stop, onWarning: warningsTo(io) };
      const restored = await database.restore(source, options);
      if (restored === undefined) throw new CommandError("Stopped: nothing was restored");

      const { plants, bytes, replaced = null, howToAddOthers, tokens } = restored;
      const result = {
        database: database.name,
        file: source,
        plants,
        bytes,
        replaced,
        endedTokens: tokens.ended,
        unconfirmedTokens: tokens.unconfirmed,
      };

      await printResult({ io, flags }, result, () => {
        const size = `${counted(plants, "plant")}, ${formatBytes(bytes)}`;
        const old = replaced === null ? "" : `; old files in "${replaced}"`;
        io.stderr(`Restored "${source}" to "${database.name}": ${size}${old}\n`);
        if (howToAddOthers !== undefined)
          io.stderr(`To add plants and tokens that only the old files have, ${howToAddOthers}\n`);
        io.stderr(wordsFor(tokens));
      });
    } catch (error) {
      if (!isSystemError(error)) throw error;
      throw new CommandError(
        `Cannot restore "${source}": ${reasonOf(error)}; nothing was changed`,
        { cause: error },
      );
    }
  },
};

function wordsFor({ ended, unconfirmed }: RestoredTokens): string {
  const kept = `Revoked after the backup, and still revoked: ${counted(ended, "token")}\n`;
  const again = `These tokens are valid as in the backup, and may have been revoked or deleted since: ${namesOf(unconfirmed)}. Revoke those that should not be valid.\n`;
  return (ended > 0 ? kept : "") + (unconfirmed.length > 0 ? again : "");
}
