import { ConfigError } from "../errors.ts";

/** One value of the configuration: where it comes from, what it means, and what is logged of it. */
export interface Setting<Value> {
  /** The environment variables that it is parsed from, each with its default; an empty default means none. */
  readonly variables: Readonly<Record<string, string>>;
  /**
   * The flag that replaces the variable, such as `--port <number>`. It is named like the setting itself, which has one
   * variable only. @default none
   */
  readonly flag?: string;
  /** What it means, for `--help` and the README. */
  readonly meaning: string;
  /**
   * Parses the texts of its variables, which are the defaults where nothing is set.
   *
   * @throws {ConfigError} If a value cannot be followed; the message names the variable, and no secret.
   */
  parse(texts: Texts): Value;
  /** What the start logs of the value. @default nothing, because it may be a secret */
  log?(value: Value): unknown;
}

/** Texts by the names of their variables. */
type Texts<Variable extends string = string> = Readonly<Record<Variable, string>>;

/** Settings by the names that their values have in the code. */
export type SettingTable = Readonly<Record<string, Setting<unknown>>>;

/** The values of a table's settings. */
export type ValuesOf<Table extends SettingTable> = {
  readonly [Name in keyof Table]: ReturnType<Table[Name]["parse"]>;
};

/** The environment variables of a process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** Declares a setting: `parse` gets the texts of just its variables, and `log` the value that `parse` returns. */
export function setting<Variable extends string, Value>(declared: {
  readonly variables: Texts<Variable>;
  readonly flag?: string;
  readonly meaning: string;
  readonly parse: (texts: Texts<Variable>) => Value;
  log?(value: NoInfer<Value>): unknown;
}): Setting<Value> {
  return declared;
}

/**
 * Parses every setting of a table. An empty variable counts as not set, as a line `PORT=` in a file means it.
 *
 * @throws {ConfigError} If a value cannot be followed.
 */
export function parseSettings<Table extends SettingTable>(table: Table, environment: Environment): ValuesOf<Table> {
  const values = Object.entries(table).map(([name, { variables, parse }]) => {
    const texts = Object.entries(variables).map(([variable, preset]) => [variable, environment[variable] || preset]);
    return [name, parse(Object.fromEntries(texts))];
  });
  return Object.fromEntries(values) as ValuesOf<Table>;
}

/** What of a table's values is logged: only what their settings say. */
export function loggableValues<Table extends SettingTable>(
  table: Table,
  values: ValuesOf<Table>,
): Record<string, unknown> {
  const logged = Object.entries(table).flatMap(([name, { log }]) => (log ? [[name, log(values[name])]] : []));
  return Object.fromEntries(logged);
}

/** What a command line says, by the names of its flags. */
export type Flags = Readonly<Record<string, unknown>>;

/**
 * The environment, with flags in the place of the variables that they replace.
 *
 * @throws {ConfigError} If a flag is empty: a shell gives that for a variable that is not set, and the default would
 * be a surprise.
 */
export function withFlags(table: SettingTable, environment: Environment, flags: Flags): Environment {
  const replaced: Record<string, string | undefined> = { ...environment };
  for (const [name, { flag, variables }] of Object.entries(table)) {
    const text = flags[name];
    if (flag === undefined || typeof text !== "string") continue;
    if (text === "")
      throw new ConfigError(`Cannot use ${flag.split(" ")[0]} "": expected a value, or no flag for the default`);
    for (const variable of Object.keys(variables)) replaced[variable] = text;
  }
  return replaced;
}
