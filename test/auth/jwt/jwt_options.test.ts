import { expect, test } from "bun:test";

import { jwtAuthenticator, type JwtOptions } from "../../../src/auth/jwt/jwt.ts";

// A program in JavaScript, or one that reads a variable which is not set, gives what the types
// forbid.

test.each([NaN, Infinity, -Infinity, 0, -1, 2 ** 53, 2 ** 31, null])(
  "jwtAuthenticator() refuses the `timeoutMs` %p",
  (timeoutMs) => {
    expect(() => jwt({ timeoutMs })).toThrow(
      new TypeError(`Cannot use \`timeoutMs\` ${timeoutMs}: expected 1 to 2147483647`),
    );
    jwt({ timeoutMs: 2 ** 31 - 1 });
  },
);

test("jwtAuthenticator() refuses an option that does not exist: it may be a misspelled one", () => {
  expect(() => jwt({ timeoutms: 1 } as object)).toThrow(
    new TypeError("Cannot use `timeoutms`: there is no such option"),
  );
});

test("every option of jwtAuthenticator() may be undefined, and has its default then", () => {
  jwtAuthenticator({
    jwksUrl: new URL("https://id.example.org/jwks"),
    issuer: "https://id.example.org/",
    audience: "plant-store",
    scope: undefined,
    subjects: undefined,
    algorithms: undefined,
    fetch: undefined,
    timeoutMs: undefined,
    onKeysFetched: undefined,
    onKeysUnavailable: undefined,
    now: undefined,
    monotonic: undefined,
  });
});

test.each([undefined, "https://id.example.org/jwks"])(
  "jwtAuthenticator() refuses the `jwksUrl` %p",
  (jwksUrl) => {
    expect(() => jwt({ jwksUrl })).toThrow(
      new TypeError("Cannot accept JWTs: `jwksUrl` must be a URL"),
    );
  },
);

test.each<[keyof JwtOptions, unknown]>([
  ["issuer", undefined],
  ["issuer", ""],
  ["issuer", null],
  ["audience", undefined],
  ["audience", ""],
  ["audience", []],
])(
  "jwtAuthenticator() without %s (%j) is refused: it would accept the tokens of any",
  (name, value) => {
    expect(() => jwt({ [name]: value })).toThrow(
      new TypeError(`Cannot accept JWTs: \`${name}\` is missing`),
    );
  },
);

test.each([[["HS256"]], [["ES256", "none"]], [[]], ["ES256"]])(
  "jwtAuthenticator() refuses the algorithms %j: it would refuse their tokens one by one",
  (algorithms) => {
    expect(() => jwt({ algorithms })).toThrow(
      new TypeError("Cannot accept JWTs: `algorithms` must be some of JWT_ALGORITHMS"),
    );
  },
);

test.each<[keyof JwtOptions, unknown, string]>([
  ["scope", "two scopes", "`scope` must be the name of one scope"],
  ["scope", "", "`scope` must be the name of one scope"],
  ["scope", 'a"b', "`scope` must be the name of one scope"],
  ["subjects", [], "`subjects`: none is listed"],
  ["subjects", "gardener", "`subjects`: no list"],
  ["subjects", [""], "`subjects`: a subject is missing"],
  ["subjects", ["gardener", undefined], "`subjects`: a subject is missing"],
  ["subjects", ["*"], "`subjects`: `*` must be the last character, after a `:`, `/` or `|`"],
  [
    "subjects",
    ["repo:garden*"],
    "`subjects`: `*` must be the last character, after a `:`, `/` or `|`",
  ],
  [
    "subjects",
    ["repo:*:main"],
    "`subjects`: `*` must be the last character, after a `:`, `/` or `|`",
  ],
  ["subjects", ["repo:**"], "`subjects`: `*` must be the last character, after a `:`, `/` or `|`"],
])("jwtAuthenticator() refuses %s %j", (name, value, says) => {
  expect(() => jwt({ [name]: value })).toThrow(new TypeError(`Cannot accept JWTs: ${says}`));
});

test("jwtAuthenticator() works where nothing tells the number of processors", async () => {
  const { navigator } = globalThis;
  using stack = new DisposableStack();
  stack.defer(() => void Object.assign(globalThis, { navigator }));
  Reflect.deleteProperty(globalThis, "navigator");

  expect(await jwt({})("no-jwt")).toMatchObject({ ok: false });
});

function jwt(options: { readonly [Name in keyof JwtOptions]?: unknown }) {
  const jwksUrl = new URL("https://id.example.org/jwks");
  const required = { jwksUrl, issuer: "https://id.example.org/", audience: "plant-store" };
  return jwtAuthenticator({ ...required, ...options } as JwtOptions);
}
