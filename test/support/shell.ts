import { FROM_SOURCE } from "./program.ts";

/** A shell that runs a script; in it `"$@"` is the program, and its commands are appended. */
export function shell(script: string): string[] {
  return ["sh", "-c", script, "sh", ...FROM_SOURCE];
}
