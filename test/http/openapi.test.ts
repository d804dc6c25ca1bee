import { expect, setDefaultTimeout, test } from "bun:test";

import { BaseResolver, createConfig, lintFromString } from "@redocly/openapi-core";
import type { OpenAPIV3 } from "openapi-types";

import { type ErrorCode, ERRORS, statusOf } from "../../src/errors.ts";
import { PATHS } from "../../src/http/paths.ts";
import { isRequired, kindOf, type Plant, PLANT_FIELDS } from "../../src/plant/plant.ts";
import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { postPlant, testApp } from "../support/app.ts";
import { TEXT } from "../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { runCommand } from "../support/stream_io.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

type Operation = OpenAPIV3.OperationObject & {
  readonly requestBody: OpenAPIV3.RequestBodyObject;
  readonly responses: Readonly<Record<string, OpenAPIV3.ResponseObject>>;
};

/** What the page loads. */
const response = await testApp({ docsFiles: swaggerUi }).fetch(
  new Request("http://localhost:3000/swagger/json"),
);
const served = (await response.json()) as OpenAPIV3.Document;
const operation = served.paths["/plants"]?.post as Operation;
const { requestBody, responses } = operation;
const schemas = served.components?.schemas as Record<string, OpenAPIV3.SchemaObject>;

function examplesOf({ properties = {} }: OpenAPIV3.SchemaObject): Record<string, unknown> {
  const members = Object.entries(properties as Record<string, OpenAPIV3.SchemaObject>);
  return Object.fromEntries(members.map(([name, { example }]) => [name, example]));
}

test.each([
  [[], "http://127.0.0.1:3000"],
  [["--server", "https://example.org/api/"], "https://example.org/api"],
])(
  "`plant-store openapi` with %j prints the document that is served, for clients of %s",
  async (flags, url) => {
    const { exitCode, stdout, stderr } = await runCommand(["openapi", ...flags], {});
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    expect(JSON.parse(stdout)).toEqual({
      ...served,
      servers: [{ url, description: "The server" }],
    });
  },
);

/** Linting needs no network: a reference to another document is a mistake, and shows as one. */
const offline = () => Promise.reject(new Error("the document must stand alone"));

test("the document is OpenAPI 3.0, and passes Redocly's strict rules without a problem", async () => {
  expect(served.openapi).toStartWith("3.0.");

  const problems = await lintFromString({
    source: JSON.stringify(served, null, 2),
    config: await createConfig({ extends: ["recommended-strict"] }),
    externalRefResolver: new BaseResolver({ http: { headers: [], customFetch: offline } }),
  });
  const found = problems.map(({ severity, ruleId, message, location }) => {
    return `${severity} ${ruleId} at ${location[0]?.pointer}: ${message}`;
  });
  expect(found).toEqual([]);
});

const CODES = Object.keys(ERRORS) as ErrorCode[];
const NUMBERS = CODES.map((code) => ERRORS[code].error);
const described = expect.any(String);
const INT64 =
  /from -9223372036854775808 to 9223372036854775807\..*`JSON\.rawJSON\("9223372036854775807"\)`/;
const text = { type: "string", description: described, example: described };
test("the OpenAPI document has the contract's version, what it does, a licence, and whom to ask", () => {
  expect(served.info).toEqual({
    title: "Plant Store",
    version: "1.0.0",
    description: expect.stringMatching(/^[^.\n]+\. [^.\n]+\.$/),
    contact: { name: "The operator of this server" },
    license: { name: "MIT", url: "https://opensource.org/license/mit" },
  });
});

test("the OpenAPI document describes POST /plants for a bearer token and a NewPlant as application/json, with a table of all errors", () => {
  const schema = { $ref: "#/components/schemas/NewPlant" };
  const rows = CODES.map(
    (code) => `| ${statusOf(code)} | ${ERRORS[code].error} | ${ERRORS[code].situation} |\n`,
  );
  const table = `\n| status | error | when |\n| --- | --- | --- |\n${rows.join("")}\n`;

  expect(served.tags).toEqual([{ name: "plants", description: described }]);
  expect<unknown>(served.paths["/plants"]?.post).toEqual({
    operationId: "createPlant",
    tags: ["plants"],
    summary: described,
    description: expect.stringContaining(table),
    security: [{ bearer: [] }],
    parameters: [],
    requestBody: {
      required: true,
      content: { "application/json": { schema, examples: expect.anything() } },
    },
    responses: expect.anything(),
  });
});

test("the document has the operations of the table of paths that need a token, but for the metrics, and each says what it does", () => {
  const listed = Object.entries(PATHS).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, access]) => access !== "public" && access !== "metrics")
      .map(([method]) => `${method} ${path}`),
  );
  const described = Object.entries(served.paths).flatMap(([path, operations]) =>
    Object.entries(operations as Record<string, OpenAPIV3.OperationObject>)
      .filter(([, { description }]) => /^\w[^\n]+\.\n\nTo try it/.test(description ?? ""))
      .map(([method]) => `${method.toUpperCase()} ${path}`),
  );
  expect(described).toEqual(listed);
});

/**
 * Each status that POST /plants can have, and the headers that a response of it carries for its
 * client.
 */
const RESPONSES = [
  ["200", ["X-Request-Id"]],
  ["400", ["X-Request-Id", "Connection"]],
  ["401", ["X-Request-Id", "WWW-Authenticate"]],
  ["403", ["X-Request-Id", "WWW-Authenticate"]],
  ["409", ["X-Request-Id"]],
  ["413", ["X-Request-Id", "Connection"]],
  ["415", ["X-Request-Id"]],
  ["500", ["X-Request-Id"]],
  ["503", ["X-Request-Id", "Retry-After", "Connection"]],
] as const;

test("the operation lists every status that POST /plants can have: its path is known, and so is its method", () => {
  const statuses = new Set(["200", ...CODES.map((code) => String(statusOf(code)))]);
  const listed = RESPONSES.map(([status]): string => status);
  expect(listed).toEqual(
    [...statuses].filter((status) => status !== "404" && status !== "405").toSorted(),
  );
  expect(Object.keys(responses)).toEqual([...listed, "default"]);
});

test.each(RESPONSES)(
  "a response of %s has its schema, its causes with their numbers, and its headers",
  (status, names) => {
    const causes = CODES.filter((code) => statusOf(code) === Number(status)).map((code) => ({
      code,
      ...ERRORS[code],
    }));
    const { headers, ...response } = responses[status] ?? {};
    expect(Object.keys(headers ?? {})).toEqual([...names]);

    const examples = causes.map(({ code, error, message }) => [
      code,
      { summary: `${error}`, value: { error, message } },
    ]);

    expect<unknown>(response).toEqual({
      description:
        causes.map(({ error, situation }) => `${error}: ${situation}`).join("\n\n") || described,
      content: {
        "application/json": {
          schema: { $ref: `#/components/schemas/${status === "200" ? "Plant" : "Error"}` },
          examples: status === "200" ? expect.anything() : Object.fromEntries(examples),
        },
      },
    });
  },
);

test("the OpenAPI document has the contract's schemas, and nothing of Elysia's own", () => {
  expect(JSON.stringify(served)).not.toContain('"$id"');
  const { NewPlant, Plant, Error } = schemas;
  // Each field has the type of its example, which another test sends.
  const properties = Object.fromEntries(
    Object.entries(examplesOf(Plant ?? {})).map(([field, example]) => {
      const property = { type: typeof example, description: described, example };
      // Another kind may have a format of its own, as a date has.
      if (kindOf(field as keyof Plant) !== "text")
        return [field, expect.objectContaining(property)];
      return [field, { ...property, pattern: "^[^\\x00]*$" }];
    }),
  );
  expect(Object.keys(properties)).toEqual([...PLANT_FIELDS]);

  expect<unknown>({ ...served.components, schemas: { NewPlant, Plant, Error } }).toEqual({
    securitySchemes: { bearer: { type: "http", scheme: "bearer", description: described } },
    schemas: {
      NewPlant: {
        type: "object",
        description: described,
        required: ["id", ...PLANT_FIELDS.filter(isRequired)],
        properties: {
          // How far it goes, and how JavaScript sends it exactly.
          id: {
            type: "integer",
            format: "int64",
            description: expect.stringMatching(INT64),
            example: 1,
          },
          ...properties,
        },
      },
      Plant: {
        type: "object",
        additionalProperties: true,
        description: described,
        required: PLANT_FIELDS.filter(isRequired),
        properties,
      },
      Error: {
        type: "object",
        additionalProperties: true,
        description: described,
        required: ["error", "message"],
        properties: {
          error: {
            type: "integer",
            format: "int32",
            minimum: 4000,
            maximum: 5999,
            description: expect.stringContaining(`One of ${NUMBERS.join(", ")}.`),
            example: ERRORS.id_taken.error,
          },
          message: text,
        },
      },
    },
  });

  expect(NUMBERS.filter((number) => number < 4000 || number > 5999)).toEqual([]);
});

test("each example of the operation's request is answered with the response's example of the same name", async () => {
  const sent = (requestBody.content["application/json"]?.examples ?? {}) as Record<
    string,
    OpenAPIV3.ExampleObject
  >;

  const received = responses["200"]?.content?.["application/json"]?.examples;
  const app = testApp();

  for (const [name, { summary, value }] of Object.entries(sent)) {
    const response = await app.fetch(postPlant(value));
    expect(received?.[name]).toEqual({ summary: summary ?? "", value: await response.json() });
  }

  const sizes = Object.values(sent).map(({ value }) => Object.keys(value).length);
  const required = PLANT_FIELDS.filter(isRequired).length;
  expect(sizes).toEqual([1 + PLANT_FIELDS.length, 1 + required]);
});

test("the examples of NewPlant, Plant and Error are a plant, the response to it, and that to another one", async () => {
  const { NewPlant = {}, Plant = {}, Error = {} } = schemas;
  const app = testApp();
  const stored = await app.fetch(postPlant(examplesOf(NewPlant)));
  expect([stored.status, await stored.json()]).toEqual([200, examplesOf(Plant)]);
  const refused = await app.fetch(postPlant({ ...examplesOf(NewPlant), [TEXT]: "Ivy" }));
  expect([refused.status, await refused.json()]).toEqual([409, examplesOf(Error)]);
});
