// Advice in messages: which command to run, and as which user.
import { ownUser } from "./own_process.ts";
import { userOf } from "./owner.ts";

/**
 * Says how to run a command on a database: with its path, and as the user of this process. A process of root
 * has become the owner by then.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function howToRunOn(command: string, file: string): string {
  const user = ownUser();
  const as = user === undefined ? "" : ` as ${userOf(user)?.name ?? `uid ${user}`}:`;
  return `run${as} plant-store ${command} --database ${inShell(file)}`;
}

/** Quotes a path for a shell. */
export function inShell(path: string): string {
  return /^[\w./:@%+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;
}
