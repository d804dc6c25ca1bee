// How to say in a message what to run, and as whom.
import { ownUser } from "./own_process.ts";
import { userOf } from "./owner.ts";

/**
 * How to run a command on a database that this process uses: with its path, and as its user. Root
 * becomes that user.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function howToRunOn(command: string, file: string): string {
  const user = ownUser();
  const as = user === undefined ? "" : ` as ${userOf(user)?.name ?? `uid ${user}`}:`;
  return `run${as} plant-store ${command} --database ${inShell(file)}`;
}

/** Advice about a file of another user. */
export function runAs(owner: number): string {
  const name = userOf(owner)?.name;
  // Only root may call runuser, and only with a name.
  const become =
    name !== undefined && ownUser() === 0
      ? `runuser -u ${name} --`
      : `sudo -u ${name ?? `'#${owner}'`}`;
  return `run this as that user: ${become} plant-store …`;
}

/** A path as it is typed in a shell. */
export function inShell(path: string): string {
  return /^[\w./:@%+-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;
}
