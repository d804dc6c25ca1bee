import type { Environment } from "./setting.ts";
import { type Flags, VARIABLES } from "./settings.ts";

/** The maximum edit distance of a mistyped name. */
const MAX_DISTANCE = 2;
/**
 * The minimum length of a name to compare: shorter ones, such as `HOST`, are too close to valid
 * names.
 */
const MIN_LENGTH = 8;

/**
 * Finds ignored variables: those that `--database` overrules, and misspelled names of settings.
 *
 * @returns A sentence for each, without its value.
 */
export function ignoredVariables(environment: Environment, flags: Flags): string[] {
  return [...overruled(environment, flags), ...mistyped(environment)];
}

/**
 * Warns if `--database` overrides variables that name another database: the server uses the flag's.
 */
function overruled(environment: Environment, { database: flag }: Flags): string[] {
  if (flag === undefined) return [];
  return ["DATABASE_URL", "DATABASE_URL_FILE"]
    .filter((variable) => !["", flag].includes(environment[variable]?.trim() ?? ""))
    .map((variable) => `Ignored ${variable}: --database overrides it`);
}

function mistyped(environment: Environment): string[] {
  return Object.entries(environment).flatMap(([variable, value]) => {
    const meant = value ? suggestion(variable) : "";
    return meant === "" ? [] : `Ignored ${variable}: ${meant}`;
  });
}

/** Returns "did you mean" for a variable close to a setting's name; otherwise an empty text. */
export function suggestion(variable: string): string {
  if (VARIABLES.includes(variable)) return "";
  const meant = VARIABLES.find((name) => name.length >= MIN_LENGTH && isClose(variable, name));
  return meant === undefined ? "" : `did you mean ${meant}?`;
}

/** Whether two names differ in a letter or two that are added, missing or wrong (Levenshtein). */
function isClose(one: string, other: string): boolean {
  if (Math.abs(one.length - other.length) > MAX_DISTANCE) return false;

  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (const [place, letter] of [...one].entries()) {
    const next = [place + 1];
    for (const [index, expected] of [...other].entries()) {
      const changed = (row[index] ?? 0) + (letter === expected ? 0 : 1);
      next.push(Math.min(changed, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return (row.at(-1) ?? 0) <= MAX_DISTANCE;
}
