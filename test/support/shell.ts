import { executable } from "./executable.ts";

/** A shell that runs a script; in it `"$@"` is the program, and its commands are appended. */
export function shell(script: string, name: "sh" | "bash" = "sh"): string[] {
  return [name, "-c", script, name, ...executable()];
}

/** The program as `nohup` starts it. */
export function underNohup(): string[] {
  return shell('trap "" HUP; exec "$@"');
}
