/** Tokens that the program made, tokens of the tests' own making, known or not, and JWTs. */
const TOKEN = /plant_[0-9A-Za-z]{38}|-token-0123|\beyJ[\w-]{8}/;

/** The names that the tests give their plants. */
const BODY = /\b(?:Fern|Ivy|Monstera|Moss|plant \d+)\b/;

/**
 * Requires that a log holds no token and nothing of a body.
 *
 * @param authTokens The tokens that the program was given, as `AUTH_TOKENS` has them.
 */
export function requireDiscreet(log: string, authTokens = ""): void {
  const given = authTokens.split(",").filter((token) => token !== "");
  const telling = log
    .split("\n")
    .filter(isLogged)
    .filter((line) => TOKEN.test(line) || BODY.test(line) || given.some((token) => line.includes(token)));
  if (telling.length > 0) throw new Error(`A token or a body got into the log:\n${telling.join("\n")}`);
}

/** The log is JSON or coloured; what is printed once for the first user, with its token, is neither. */
function isLogged(line: string): boolean {
  return line.startsWith('{"@timestamp"') || line.startsWith("\u{1B}[");
}
