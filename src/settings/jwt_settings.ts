import { isScopeName } from "../auth/authenticate.ts";
import { JWT_ALGORITHMS, subjectFault } from "../auth/jwt/jwt.ts";
import { publicUrl } from "../auth/jwt/public_url.ts";
import { ConfigError } from "../errors.ts";
import {
  bare,
  type Input,
  isComplete,
  parseChoice,
  parseUrl,
  refusal,
  withoutSecrets,
  wordsOf,
} from "./parsers.ts";
import { setting } from "./setting.ts";

/** The settings of an identity provider. */
export const JWT_SETTINGS = {
  jwt: setting("Authentication", {
    variables: { AUTH_JWKS_URL: "", AUTH_ISSUER: "", AUTH_AUDIENCE: "" },
    meaning: "accept the JWTs of an identity provider: all three or none",
    parse: (jwksUrl, issuer, audience) =>
      isComplete([jwksUrl, issuer, audience])
        ? { jwksUrl: parseJwksUrl(jwksUrl), issuer: issuer.text, audience: audience.text }
        : undefined,
    log: (jwt) =>
      jwt && {
        jwksUrl: publicUrl(jwt.jwksUrl),
        issuer: jwt.issuer,
        audience: jwt.audience,
      },
    check: requireProvider,
  }),

  jwtScope: setting("Authentication", {
    variables: { AUTH_SCOPE: "" },
    meaning: "the scope that a JWT needs; if unset, every JWT may do everything",
    parse: (scope) => (scope.text === "" ? undefined : parseScope(scope)),
  }),

  jwtSubjects: setting("Authentication", {
    variables: { AUTH_SUBJECTS: "" },
    meaning:
      "subjects whose JWTs are accepted, comma-separated, such as `repo:garden/*`; default: all",
    parse: (subjects) => (subjects.text === "" ? undefined : parseSubjects(subjects)),
    log: (subjects) => subjects?.length,
  }),

  jwtAlgorithms: setting("Authentication", {
    variables: { AUTH_ALGORITHMS: "" },
    meaning: "accepted signature algorithms of JWTs, such as `ES256,EdDSA`; default: all safe ones",
    parse: ({ name, text }) =>
      text === ""
        ? undefined
        : text
            .split(",")
            .map((algorithm) => parseChoice({ name, text: algorithm.trim() }, JWT_ALGORITHMS)),
    log: (algorithms) => algorithms?.join(","),
  }),
};

/** Refuses limits on JWTs without a provider: they would limit nothing. */
function requireProvider(config: Readonly<Record<string, unknown>>): void {
  const given = (["jwtScope", "jwtSubjects", "jwtAlgorithms"] as const)
    .filter((name) => config[name] !== undefined)
    .flatMap((name) => Object.keys(JWT_SETTINGS[name].variables));
  if (config.jwt !== undefined || given.length === 0) return;

  const missing = Object.keys(JWT_SETTINGS.jwt.variables).join(" and ");
  throw new ConfigError(`Cannot use ${given.join(" and ")} without ${missing}`);
}

/** Parses the name of one scope (RFC 6749, section 3.3). */
function parseScope(input: Input): string {
  if (isScopeName(input.text)) return input.text;
  throw refusal(input, "expected the name of one scope");
}

/** Parses subjects of JWTs, separated by commas. */
function parseSubjects(input: Input): string[] {
  const subjects = wordsOf(input.text, ",").map((text) => bare({ name: input.name, text }));
  for (const subject of subjects) {
    const fault = subjectFault(subject);
    if (fault !== undefined) throw refusal(input, fault, subject);
  }
  if (subjects.length > 0) return subjects;
  throw refusal(input, "expected at least one subject");
}

/**
 * Parses the URL of keys. Plain HTTP is for this machine only: an attacker who replaces keys on the
 * network can sign tokens.
 */
function parseJwksUrl(input: Input): URL {
  const isWeb = ({ protocol }: URL) => protocol === "https:" || protocol === "http:";
  const url = parseUrl(input, isWeb, "expected an https URL without a password");
  if (url.protocol === "https:" || isLoopback(url)) return url;

  const expected =
    "expected https, because keys that are changed in transit can sign tokens; http is accepted for this machine only, such as http://localhost";
  throw refusal(input, expected, withoutSecrets(input.text));
}

/** Whether the host of a URL is this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
}
