/** Tokens that the program made, tokens of the tests' own making, known or not, and JWTs. */
const TOKEN = /plant_[0-9A-Za-z]{38}|-token-0123|\beyJ[\w-]{8}/;

/** The names that the tests give their plants. */
const BODY = /\b(?:Fern|Ivy|Monstera|Moss|plant \d+)\b/;

/**
 * Requires that a log holds no token and nothing of a body.
 *
 * @param authTokens The tokens that the program was given, as `AUTH_TOKENS` has them.
 */
export function assertNoSecrets(log: string, authTokens = ""): void {
  const given = authTokens.split(",").filter((token) => token !== "");
  const leaks = log
    .split("\n")
    .filter((line) => !showsFirstToken(line))
    .filter((line) => TOKEN.test(line) || BODY.test(line) || given.some((token) => line.includes(token)));
  if (leaks.length > 0) throw new Error(`A token or a body got into the log:\n${leaks.join("\n")}`);
}

/** The first start prints its token once, and a curl line that stores a plant with it. */
function showsFirstToken(line: string): boolean {
  return /^ {2}(?:plant_[0-9A-Za-z]{38}$|curl -i http)/.test(line);
}
