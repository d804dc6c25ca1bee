import { expect } from "bun:test";

/** Of a lock that does not end, the wait for it or the whole time ends first. */
const LATE = String.raw`(?:another transaction held a lock for too long \(55P03\)|it did not respond in time \(DEADLINE\))`;

/** What to do after a change whose outcome is unknown. */
export const LOOK = "; plant-store token list shows whether it was done";

/** What to do after a token was made, or was not. */
export const SECRET_NOT_SHOWN =
  "; a token of this name may exist now although its secret was not shown: remove it with plant-store token delete new";

/** Commands that read or change tokens: how each says that it could not in time. */
export const LATE_COMMANDS: readonly (readonly [args: string, action: string, advice: string])[] = [
  ["token list", "list the tokens", ""],
  ["token create new", 'create token "new"', SECRET_NOT_SHOWN],
  ["token revoke old", 'revoke token "old"', LOOK],
  ["token delete old", 'delete token "old"', LOOK],
  ["token prune", "prune the tokens", LOOK],
  ["serve --port 0", "read the tokens", ""],
];

/** The line of a server that goes on without a first token. */
export const NO_FIRST_TOKEN = new RegExp(
  `"No first token could be created, .* plant-store token delete first-start .*"reason":"${LATE}"`,
);

/** Runs a command to its end. */
type Run = (args: readonly string[]) => Promise<{ exitCode: number; stdout: string; stderr: string }>;

/** Runs all of them at once, while nobody gets at the tokens: each has to end in one line. */
export async function expectLateCommands(run: Run): Promise<void> {
  await Promise.all(
    LATE_COMMANDS.map(async ([args, action, advice]) => {
      const { stderr, ...ended } = await run(args.split(" "));
      expect(ended).toEqual({ exitCode: 1, stdout: "" });
      expect(stderr).toMatch(lateLine(action, advice));
    }),
  );
}

/** The line of a command that could not do this in time. */
export function lateLine(action: string, advice: string): RegExp {
  return new RegExp(`^Cannot ${action} in database "postgres": ${LATE}${advice}\n$`);
}
