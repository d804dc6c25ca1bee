import { INT64_MAX, INT64_MIN } from "../../src/plant/plant.ts";
import { TOKEN } from "./client.ts";
import { fern, membersOf } from "./plants.ts";

// What is good or bad in one part of a request. The app is tested with each, and so is every
// runtime over a socket.

/** The largest integer up to which every integer is exact in JavaScript: 2^53 - 1. */
const SAFE = 9007199254740991n;

/** Values of one Authorization header that are not a bearer token. */
export const MALFORMED_CREDENTIALS: readonly (readonly [what: string, authorization: string])[] = [
  ["the scheme alone", "Bearer"],
  ["the scheme and a space", "Bearer "],
  ["a tab", `Bearer\t${TOKEN}`],
  ["a tab after the space", `Bearer \t${TOKEN}`],
  ["something after the token", `Bearer ${TOKEN} x`],
  ["a parameter", `Bearer token=${TOKEN}`],
  ["quotes", `Bearer "${TOKEN}"`],
  ["padding only", "Bearer ="],
  ["padding inside", "Bearer a=b"],
  ["a comma", `Bearer ${TOKEN},`],
  ["a list", `Bearer ${TOKEN}, Bearer ${TOKEN}`],
  ["a character that no token has", `Bearer ${TOKEN}é`],
];

/** Values of Authorization of another scheme: to the service, no credentials. */
export const OTHER_SCHEMES: readonly (readonly [what: string, authorization: string])[] = [
  ["no scheme", TOKEN],
  ["no space", `Bearer${TOKEN}`],
  ["a colon before it", `:Bearer ${TOKEN}`],
  ["a prefix to the scheme", `XBearer ${TOKEN}`],
  ["another scheme", `Basic ${TOKEN}`],
  ["the scheme of GitHub and Django", `token ${TOKEN}`],
  ["another scheme before it", `Basic Bearer ${TOKEN}`],
  ["another scheme beside it", `Basic eDp5, Bearer ${TOKEN}`],
];

/** The members of a plant beside its id. */
const FERN = membersOf(fern());

/** Texts that are not JSON. */
export const NOT_JSON: readonly (readonly [what: string, text: string])[] = [
  ["white space", " \n"],
  ["a byte order mark alone", "\uFEFF"],
  ["two byte order marks", `\uFEFF\uFEFF{"id": 1, ${FERN}}`],
  ["a byte order mark after it", `{"id": 1, ${FERN}}\uFEFF`],
  ["no JSON at all", "not json"],
  ["an unfinished object", '{"id": 1'],
  ["a trailing comma", `{"id": 1, ${FERN},}`],
  ["single quotes", `{"id": 1, ${FERN}}`.replaceAll('"', "'")],
  ["bare keys", `{id: 1, ${FERN}}`],
  ["a comment", `{"id": 1, ${FERN}} // mine`],
  ["two values", `{"id": 1, ${FERN}} {"id": 1, ${FERN}}`],
  ["a leading zero", `{"id": 01, ${FERN}}`],
  ["a plus sign", `{"id": +1, ${FERN}}`],
  ["a hexadecimal number", `{"id": 0x1, ${FERN}}`],
  ["a number without digits before its point", `{"id": .5, ${FERN}}`],
  ["a number without digits after its point", `{"id": 1., ${FERN}}`],
  ["NaN", `{"id": NaN, ${FERN}}`],
  ["a BigInt literal", `{"id": 1n, ${FERN}}`],
  ["a raw control character", `{"id": 1, ${FERN.replace("Fern", "Fe\nrn")}}`],
  ["a raw NUL", `{"id": 1, ${FERN.replace("Fern", "\0")}}`],
  ["an escape that JSON has not", `{"id": 1, ${FERN.replace("Fern", "\\x41")}}`],
  ["half an escape", `{"id": 1, ${FERN.replace("Fern", "\\u00")}}`],
  ["white space that JSON has not", `\u00A0{"id": 1, ${FERN}}`],
  ["a form", "id=1&name=Fern"],
];

/** Numbers that are ids, as JSON may write them. */
export const EXACT_IDS: readonly (readonly [source: string, id: bigint])[] = [
  ["0", 0n],
  ["-0", 0n],
  ["-0.0", 0n],
  ["0e5", 0n],
  ["0.000e-7", 0n],
  ["1", 1n],
  ["-1", -1n],
  ["1.0", 1n],
  ["1.000", 1n],
  ["1e0", 1n],
  ["1E0", 1n],
  ["1e+0", 1n],
  ["1e-0", 1n],
  ["1e3", 1000n],
  ["1E+3", 1000n],
  ["1.5e1", 15n],
  ["1.25e2", 125n],
  ["0.001e3", 1n],
  ["10e-1", 1n],
  ["1200.00e-2", 12n],
  ["-1200.00e-2", -12n],
  ["1e00000003", 1000n],
  [`${SAFE}`, SAFE],
  [`-${SAFE}`, -SAFE],
  [`${SAFE}.0`, SAFE],
  [`-${SAFE}.000e0`, -SAFE],
  ["9007199254740.991e3", SAFE],
  ["90071992547409910e-1", SAFE],
  [`${SAFE + 1n}`, SAFE + 1n],
  [`${SAFE + 2n}`, SAFE + 2n],
  [`-${SAFE + 2n}`, -SAFE - 2n],
  ["1000000000000000001", 1000000000000000001n],
  [`${INT64_MAX - 1n}`, INT64_MAX - 1n],
  [`${INT64_MAX}`, INT64_MAX],
  [`${INT64_MIN + 1n}`, INT64_MIN + 1n],
  [`${INT64_MIN}`, INT64_MIN],
];

/** Values that are not an id, as JSON. */
export const NOT_IDS: readonly (readonly [what: string, source: string])[] = [
  ["a string", '"1"'],
  ["a string with a space", '" 1 "'],
  ["an empty string", '""'],
  ["true", "true"],
  ["false", "false"],
  ["null", "null"],
  ["an array", "[1]"],
  ["an empty array", "[]"],
  ["an object", '{"id": 1}'],
  ["a fraction", "1.5"],
  ["a small fraction", "1e-1"],
  ["a tiny fraction", "1e-400"],
  ["a fraction with trailing zeros", "1.50"],
  ["a fraction that rounds up to 1", "0.99999999999999999999"],
  ["a fraction that rounds down to 1", "1.00000000000000000001"],
  ["a fraction that rounds to 0", "0.0000000000000000000000001e-320"],
  ["a fraction that rounds to -1", "-0.99999999999999999999e0"],
  ["a fraction that rounds to 2^53-1", "9007199254740990.9"],
  ["a fraction of 2^53-1 that rounds to it", "9007199254740991.1"],
  ["a fraction that rounds to 1e3", "1000.00000000000000000001e0"],
  ["a fraction by its exponent", "10000000000000000000000001e-25"],
  ["2^53 with a fraction part", "9007199254740992.0"],
  ["2^53 with an exponent", "9007199254740992e0"],
  ["2^53+1 with an exponent", "9007199254740993e0"],
  ["2^53+1 with a fraction part", "9007199254740993.0"],
  ["-2^53 with a fraction part", "-9007199254740992.0"],
  ["1e18, which is an int64 but not plain digits", "1e18"],
  ["int64's end with a fraction part", "9223372036854775807.0"],
  ["2^63", "9223372036854775808"],
  ["-2^63-1", "-9223372036854775809"],
  ["2^64", "18446744073709551616"],
  ["2^64+1", "18446744073709551617"],
  ["twenty digits", "10000000000000000000"],
  ["2^63 with an exponent", "9223372036854775808e0"],
  ["1e19", "1e19"],
  ["1e300", "1e300"],
  ["1e400", "1e400"],
  ["-1e400", "-1e400"],
  ["an exponent past every integer", "1e99999999999999999999"],
];
