import type { Call } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** The flag of commands that use {@linkcode printResult}. */
export const JSON_FLAG = ["--json", "Print the result as one line of JSON, for programs"] as const;

/**
 * Prints the result of a command: with `--json` as one line of JSON on stdout, otherwise for
 * people. A failed command throws instead.
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
