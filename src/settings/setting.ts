import { bare, type Input } from "./parsers.ts";

/** One value of the configuration. */
export interface Setting<Value> {
  /** Its heading in `--help`. */
  readonly group: "Network" | "Database" | "Authentication" | "Limits" | "TLS" | "Observability";

  /**
   * The environment variables that it is parsed from, each with its default; an empty default means
   * none.
   */
  readonly variables: Readonly<Record<string, string>>;

  /**
   * The flag that overrides its only variable, such as `--port <number>`, and has its name.
   *
   * @default none
   */
  readonly flag?: string;

  /** Its meaning, for `--help` and the README. */
  readonly meaning: string;

  /**
   * Parses the values of its variables, or their defaults, in their order.
   *
   * @throws {ConfigError} If a value cannot be used; the message names the variable or the flag,
   *   and no secret.
   */
  parse(...inputs: Input[]): Value;

  /**
   * Checks the settings that depend on each other, after all were parsed.
   *
   * @throws {ConfigError} If they cannot be used together.
   * @default nothing is checked
   */
  check?(config: Readonly<Record<string, unknown>>, environment: Environment): void;

  /**
   * What the log of the start has of the value: no secret. @default the value, unless it is an
   * object
   */
  log?(value: NoInfer<Value>): unknown;
}

/** A setting whose type follows from its parser. */
export function setting<Value>(
  group: Setting<Value>["group"],
  declared: Omit<Setting<Value>, "group">,
): Setting<Value> {
  return { group, ...declared };
}

/** The environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The bare value of a variable; empty if it is not set. */
export function valueOf(variable: string, environment: Environment): string {
  return bare({ name: variable, text: environment[variable] ?? "" });
}
