import type { Call } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** The flag of commands that use {@linkcode printResult}. */
export const JSON_FLAG = ["--json", "Print the result as one line of JSON, for programs"] as const;

/**
 * Prints what a command found or did: with `--json` as one line of JSON on stdout, otherwise as
 * people read it. A command that did not do its work has no result: it throws.
 *
 * @param print Prints the result for people.
 */
export async function printResult(
  { io, flags }: Pick<Call, "io" | "flags">,
  result: object,
  print: () => void | Promise<void>,
): Promise<void> {
  if (flags["json"] === true) await writeOutput(io, `${JSON.stringify(result)}\n`);
  else await print();
}
