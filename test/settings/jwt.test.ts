import { expect, test } from "bun:test";

import { ConfigError } from "../../src/errors.ts";
import { loggableSettings, parseConfig } from "../../src/settings/settings.ts";
import { PASSWORDS } from "./passwords.ts";

const PROVIDER = {
  AUTH_JWKS_URL: "https://id.example.com/jwks",
  AUTH_ISSUER: "me",
  AUTH_AUDIENCE: "plant-store",
};

test("parseConfig() takes an identity provider", () => {
  const jwt = {
    jwksUrl: new URL("https://id.example.com/jwks"),
    issuer: "me",
    audience: "plant-store",
  };
  expect(parseConfig(PROVIDER).jwt).toEqual(jwt);
  expect(
    parseConfig({ ...PROVIDER, AUTH_JWKS_URL: "http://127.0.0.1:8080/jwks" }).jwt?.jwksUrl.port,
  ).toBe("8080");
});

test("loggableSettings() shows the provider, and no secret", () => {
  const config = parseConfig({
    LOG_FORMAT: "json",
    AUTH_JWKS_URL: "https://id.example.com/jwks?key=secret#secret",
    AUTH_ISSUER: "https://id.example.com/",
    AUTH_AUDIENCE: "plant-store",
    AUTH_SCOPE: "plants:write",
    AUTH_SUBJECTS: "gardener",
    AUTH_ALGORITHMS: "ES256, EdDSA",
  });
  expect(loggableSettings(config)).toMatchObject({
    jwt: {
      jwksUrl: "https://id.example.com/jwks",
      issuer: "https://id.example.com/",
      audience: "plant-store",
    },
    jwtScope: "plants:write",
    jwtSubjects: 1,
    jwtAlgorithms: "ES256,EdDSA",
  });
});

test("parseConfig() keeps what may be in the name of an audience", () => {
  for (const audience of ["My plants", "api://plants", "urn:plants:store", "garten-größe"])
    expect(parseConfig({ ...PROVIDER, AUTH_AUDIENCE: audience }).jwt?.audience).toBe(audience);
});

test("parseConfig() refuses quotes around one of several subjects", () => {
  expect(() => parseConfig({ ...PROVIDER, AUTH_SUBJECTS: 'a,"b",c' })).toThrow(
    new ConfigError("Cannot use AUTH_SUBJECTS: remove the quotes around its value"),
  );
});

const WITHOUT_PROVIDER = " without AUTH_JWKS_URL and AUTH_ISSUER and AUTH_AUDIENCE";

/** Values of a variable, and what is said of each. */
const refused: [values: string[], variable: string, says: string][] = [
  [["https://id.example.com/"], "AUTH_ISSUER", "without AUTH_JWKS_URL and AUTH_AUDIENCE"],
  [["https://id.example.com/jwks"], "AUTH_JWKS_URL", "without AUTH_ISSUER and AUTH_AUDIENCE"],
  [["plants:write plants:read"], "AUTH_SCOPE", "expected the name of one scope"],
  [["plants:write"], "AUTH_SCOPE", WITHOUT_PROVIDER],
  [["repo:garden/plants"], "AUTH_SUBJECTS", WITHOUT_PROVIDER],
  [["ES256"], "AUTH_ALGORITHMS", WITHOUT_PROVIDER],
  [["HS256"], "AUTH_ALGORITHMS", "Cannot use AUTH_ALGORITHMS=HS256: expected RS256, RS384"],
  [["ES256,none"], "AUTH_ALGORITHMS", "Cannot use AUTH_ALGORITHMS=none: expected RS256, RS384"],
  [["ES256,"], "AUTH_ALGORITHMS", 'Cannot use AUTH_ALGORITHMS="": expected RS256, RS384'],
  [["*", "garden*", "repo:*:main"], "AUTH_SUBJECTS", "`*` must be the last character, after a"],
  [[","], "AUTH_SUBJECTS", "expected at least one subject"],
];

test.each(refused.flatMap(([values, ...rest]) => values.map((value) => [value, ...rest] as const)))(
  "parseConfig() refuses %p as %s: %s",
  (value, variable, says) => {
    expect(() => parseConfig({ [variable]: value })).toThrow(ConfigError);
    expect(() => parseConfig({ [variable]: value })).toThrow(says);
  },
);

const UNSAFE = [
  "http://id.example.com/jwks",
  "http://keycloak:8080/realms/garden/protocol/openid-connect/certs",
  "ftp://localhost/jwks",
  "id.example.com/jwks",
  "http://localhost.example.com/",
];

test.each(UNSAFE)(
  "parseConfig() refuses AUTH_JWKS_URL %s, which others could change in transit",
  (url) => {
    const settings = { ...PROVIDER, AUTH_JWKS_URL: url };
    expect(() => parseConfig(settings)).toThrow(
      url.startsWith("http:")
        ? `Cannot use AUTH_JWKS_URL=${url}: expected https, because keys that are changed in transit can sign tokens; http is accepted for this machine only`
        : `Cannot use AUTH_JWKS_URL=${url}: expected an https URL`,
    );
  },
);

test.each(PASSWORDS)("parseConfig() refuses a password in AUTH_JWKS_URL %s", (url) => {
  const refusal = () => parseConfig({ ...PROVIDER, AUTH_JWKS_URL: url });
  expect(refusal).toThrow("AUTH_JWKS_URL");
  expect(refusal).toThrow("without a password");
  expect(refusal).not.toThrow("secret");
});
