import { bare, type Input } from "./parsers.ts";

/** One value of the configuration. */
export interface Setting<Value> {
  /** The heading in `--help`. */
  readonly group: "Network" | "Database" | "Authentication" | "Limits" | "TLS" | "Observability";

  /**
   * The environment variables of the setting, each with its default; an empty default means none.
   */
  readonly variables: Readonly<Record<string, string>>;

  /**
   * The flag that overrides the setting's only variable, and has its name, such as `--port
   * <number>`.
   *
   * @default none
   */
  readonly flag?: string;

  /** The meaning, for `--help` and the README. */
  readonly meaning: string;

  /**
   * Parses the values of the variables, or their defaults, in order.
   *
   * @throws {ConfigError} If a value cannot be used; the message names the variable or the flag,
   *   and no secret.
   */
  parse(...inputs: Input[]): Value;

  /**
   * Checks settings that depend on each other, after parsing all.
   *
   * @throws {ConfigError} If they cannot be used together.
   * @default nothing is checked
   */
  check?(config: Readonly<Record<string, unknown>>, environment: Environment): void;

  /**
   * Returns the part of the value that the startup log may have, without secrets. @default the
   * value, unless it is an object
   */
  log?(value: NoInfer<Value>): unknown;
}

/** Declares a setting, and infers its type from its parser. */
export function setting<Value>(
  group: Setting<Value>["group"],
  declared: Omit<Setting<Value>, "group">,
): Setting<Value> {
  return { group, ...declared };
}

/** The environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Returns the trimmed value of a variable; empty if it is not set. */
export function valueOf(variable: string, environment: Environment): string {
  return bare({ name: variable, text: environment[variable] ?? "" });
}
