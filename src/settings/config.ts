import {
  type Environment,
  type Flags,
  loggableValues,
  parseSettings,
  type ValuesOf,
  withFlags,
} from "./setting_table.ts";
import { SETTINGS } from "./settings.ts";

/** Everything an operator can set, parsed and checked. */
export type Config = ValuesOf<typeof SETTINGS>;

/**
 * Parses the configuration. An empty variable counts as not set; an empty flag is refused.
 *
 * @param flags What the command line says, by the names of settings: these replace their variables.
 * @throws {ConfigError} If a value cannot be followed; the message names the variable, and no secret.
 *
 * @example
 * ```ts
 * parseConfig({ PORT: "8080" }).port; // 8080
 * ```
 */
export function parseConfig(environment: Environment, flags: Flags = {}): Config {
  return parseSettings(SETTINGS, withFlags(SETTINGS, environment, flags));
}

/** What of the configuration may be logged: what each setting says, and no more. */
export function loggableSettings(config: Config): Record<string, unknown> {
  return loggableValues(SETTINGS, config);
}
