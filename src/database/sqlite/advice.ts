// How to say in a message what to run, and as whom.
import { existsSync, readFileSync } from "node:fs";

import { ownUser } from "./own_process.ts";

/**
 * How to run a command on a database that this process uses: with its path, and as its user, because
 * root is refused.
 *
 * @param file From {@linkcode databaseFile}.
 */
export function howToRunOn(command: string, file: string): string {
  const user = ownUser();
  const as = user === undefined ? "" : ` as ${nameOf(user) ?? `uid ${user}`}:`;
  return `run${as} plant-store ${command} --database ${inShell(file)}`;
}

/** Advice about a file of another user. */
export function runAs(owner: number): string {
  const name = nameOf(owner);
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

/** The name of a user of this machine: passwd(5). */
function nameOf(user: number): string | undefined {
  const lines = existsSync(USERS) ? readFileSync(USERS, "utf8").split("\n") : [];
  return lines.map((line) => line.split(":")).find(([, , uid]) => uid === String(user))?.[0];
}

const USERS = "/etc/passwd";
