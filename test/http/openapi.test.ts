import { expect, setDefaultTimeout, test } from "bun:test";
import { BaseResolver, createConfig, lintFromString } from "@redocly/openapi-core";
import { Validator } from "@seriousme/openapi-schema-validator";
import type { OpenAPIV3 } from "openapi-types";
import { swaggerUi } from "../../src/server/swagger_ui.ts";
import { type ErrorCode, ERRORS, statusOf } from "../../src/errors.ts";
import { postPlant, testApp } from "../support/app.ts";
import { emptyDirectory, TEST_TIMEOUT_MS, runToEnd } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** What the page loads. */
async function servedDocument(): Promise<OpenAPIV3.Document> {
  const response = await testApp({ docsFiles: swaggerUi }).fetch(new Request("http://localhost:3000/swagger/json"));
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toStartWith("application/json");
  return (await response.json()) as OpenAPIV3.Document;
}

type Operation = OpenAPIV3.OperationObject & {
  readonly requestBody: OpenAPIV3.RequestBodyObject;
  readonly responses: Readonly<Record<string, OpenAPIV3.ResponseObject>>;
};

const served = await servedDocument();
const operation = served.paths["/plants"]?.post as Operation;
const { responses } = operation;
const schemas = served.components?.schemas as Record<string, OpenAPIV3.SchemaObject>;

function propertiesOf(schema: string): Record<string, OpenAPIV3.SchemaObject> {
  return (schemas[schema]?.properties ?? {}) as Record<string, OpenAPIV3.SchemaObject>;
}

function examplesOf({ properties = {} }: OpenAPIV3.SchemaObject): Record<string, unknown> {
  const members = Object.entries(properties as Record<string, OpenAPIV3.SchemaObject>);
  return Object.fromEntries(members.map(([name, { example }]) => [name, example]));
}

/** The causes that POST /plants can answer with: its path is known, and so is its method. */
const CODES = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => ![404, 405].includes(statusOf(code)));

async function printedDocument(...flags: string[]): Promise<OpenAPIV3.Document> {
  using directory = emptyDirectory();
  const { exitCode, stdout, stderr } = await runToEnd({ args: ["openapi", ...flags], cwd: directory.path });
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return JSON.parse(stdout) as OpenAPIV3.Document;
}

test("GET /swagger/json and `plant-store openapi` give the same document, but for the server's URL", async () => {
  const { servers: printedServers, ...printed } = await printedDocument();
  const { servers, ...rest } = served;
  expect(printed).toEqual(rest);
  expect(servers).toEqual([{ url: "..", description: "This server" }]);
  expect(printedServers).toEqual([{ url: "http://127.0.0.1:3000", description: "The server" }]);
});

test.each(["http://127.0.0.1:3000", "https://plants.example.org", "https://example.org/api/plants-v1"])(
  "GET /swagger/json below %s says that the API is there, whatever proxy is in between",
  (base) => {
    const { servers = [] } = served;
    const urls = servers.map(({ url }) => new URL(url, `${base}/swagger/json`).href);
    expect(urls).toEqual([`${base}/`]);
  },
);

test("`plant-store openapi --server` takes the URL that clients reach the API by", async () => {
  const { servers } = await printedDocument("--server", "https://example.org/api/");
  expect(servers).toEqual([{ url: "https://example.org/api", description: "The server" }]);
});

test("the OpenAPI document is valid OpenAPI 3.0", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate({ ...served });
  expect(errors).toBeUndefined();
  expect({ valid, version: validator.version }).toEqual({ valid: true, version: "3.0" });
});

/** Linting needs no network: a reference to another document is a mistake, and shows as one. */
const offline = () => Promise.reject(new Error("the document must stand alone"));

test("the OpenAPI document passes Redocly's strict rules without a problem", async () => {
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

test("the OpenAPI document has the contract's version, a licence, and says whom to ask", () => {
  expect(served.info).toMatchObject({
    title: "Plant Store",
    version: "1.0.0",
    contact: { name: "The operator of this server" },
    license: { name: "MIT", url: "https://opensource.org/license/mit" },
  });
});

test("the OpenAPI document's table of errors has a row for each", () => {
  const rows = served.info.description?.split("\n").filter((line) => line.startsWith("| "));
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const expected = codes.map((code) => `| ${statusOf(code)} | ${ERRORS[code].error} | ${ERRORS[code].situation} |`);
  expect(rows?.slice(2)).toEqual(expected);
});

test("the OpenAPI document describes POST /plants and nothing else", () => {
  const { paths } = served;
  expect(Object.entries(paths).map(([path, item]) => [path, Object.keys(item ?? {})])).toEqual([["/plants", ["post"]]]);
});

test("the operation stands under a tag that the OpenAPI document explains, and every tag has one", () => {
  const { tags = [] } = served;
  expect(operation.tags).toEqual(tags.map(({ name }) => name));
});

test("the operation takes a required NewPlant as application/json only", () => {
  const { requestBody, parameters = [] } = operation;
  expect(requestBody).toEqual({
    required: true,
    content: {
      "application/json": { schema: { $ref: "#/components/schemas/NewPlant" }, examples: expect.anything() },
    },
  });
  expect(parameters).toEqual([]);
});

test("the operation gives a Plant or an Error, as application/json only", () => {
  for (const [status, { content = {} }] of Object.entries(responses)) {
    const schema = { $ref: `#/components/schemas/${status === "200" ? "Plant" : "Error"}` };
    expect({ status, types: Object.keys(content) }).toEqual({ status, types: ["application/json"] });
    expect(content["application/json"]?.schema).toEqual(schema);
  }
});

test("the operation lists every status that POST /plants can have", () => {
  const statuses = new Set(["200", ...CODES.map((code) => String(statusOf(code)))]);
  expect([...statuses].toSorted()).toEqual(["200", "400", "401", "403", "409", "413", "415", "500", "503"]);
  expect(Object.keys(responses).toSorted()).toEqual([...statuses].toSorted());
});

test.each(CODES)("the operation names the error number of %s, says when it is given, and shows it", (code) => {
  const { error, situation, message } = ERRORS[code];
  const { description, content } = responses[statusOf(code)] ?? {};
  expect(description?.split("\n\n")).toContain(`${error}: ${situation}`);
  expect(content?.["application/json"]?.examples?.[code]).toEqual({
    summary: String(error),
    value: { error, message },
  });
});

test("the operation names the headers that answers carry for their client", () => {
  const named = Object.entries(responses).map(([status, { headers = {} }]) => [status, Object.keys(headers)]);
  expect(Object.fromEntries(named)).toEqual({
    200: ["X-Request-Id"],
    400: ["X-Request-Id", "Connection"],
    401: ["X-Request-Id", "WWW-Authenticate"],
    403: ["X-Request-Id", "WWW-Authenticate"],
    409: ["X-Request-Id"],
    413: ["X-Request-Id", "Connection"],
    415: ["X-Request-Id"],
    500: ["X-Request-Id"],
    503: ["X-Request-Id", "Retry-After", "Connection"],
  });
});

test("the operation wants a bearer token", () => {
  const { components } = served;
  expect(operation.security).toEqual([{ bearer: [] }]);
  expect(components?.securitySchemes).toMatchObject({ bearer: { type: "http", scheme: "bearer" } });
});

test.each([
  ["NewPlant", ["id", "name"], { id: ["integer", "int64"], name: ["string"], tag: ["string"] }],
  ["Plant", ["name"], { name: ["string"], tag: ["string"] }],
  ["Error", ["error", "message"], { error: ["integer", "int32"], message: ["string"] }],
])("%s has the contract's members and types, and no other", (schema, required, members) => {
  const found = schemas[schema];
  expect({ type: found?.type, required: found?.required }).toEqual({ type: "object", required });
  const types = Object.entries(propertiesOf(schema)).map(([name, { type, format }]) => [
    name,
    format === undefined ? [type] : [type, format],
  ]);
  expect(Object.fromEntries(types)).toEqual(members);
});

test("Error bounds its member `error`, and lists every value that it can have", () => {
  const { error } = propertiesOf("Error");
  const numbers = Object.values(ERRORS).map((row) => row.error);
  expect(error?.description).toContain(`One of ${numbers.join(", ")}.`);
  expect({ minimum: error?.minimum, maximum: error?.maximum }).toEqual({ minimum: 4000, maximum: 5999 });
  expect([...numbers, 4000, 5999].toSorted((a, b) => a - b)).toEqual([4000, ...numbers, 5999]);
});

test("NewPlant says of its member `id` how far it goes, and how JavaScript sends it exactly", () => {
  const { id } = propertiesOf("NewPlant");
  expect(id?.description).toContain("from -9223372036854775808 to 9223372036854775807");
  expect(id?.description).toContain('`JSON.rawJSON("9223372036854775807")`');
});

test("the OpenAPI document holds nothing of Elysia's own: no $id, no error sentence, no kind", () => {
  const own = Object.values(schemas).flatMap(({ properties = {}, ...schema }) => [
    ...Object.keys(schema),
    ...Object.values(properties).flatMap((property) => Object.keys(property)),
  ]);
  const words = new Set(["description", "example", "format", "maximum", "minimum", "properties", "required", "type"]);
  expect(own.filter((key) => !words.has(key))).toEqual([]);
  expect(JSON.stringify(served)).not.toContain('"$id"');
});

test("each example of the operation's request is answered with the response's example of the same name", async () => {
  const { requestBody } = operation;
  const sent = (requestBody.content["application/json"]?.examples ?? {}) as Record<string, OpenAPIV3.ExampleObject>;
  const received = responses["200"]?.content?.["application/json"]?.examples;
  const app = testApp();
  for (const [name, { summary, value }] of Object.entries(sent)) {
    const response = await app.fetch(postPlant(value));
    expect(received?.[name]).toEqual({ summary: summary ?? "", value: await response.json() });
  }
  expect(Object.keys(sent)).toEqual(["with_tag", "without_tag"]);
});

test("the example of NewPlant is stored, and answered with the example of Plant", async () => {
  const { NewPlant = {}, Plant = {} } = schemas;
  const response = await testApp().fetch(postPlant(examplesOf(NewPlant)));
  expect(response.status).toBe(200);
  expect(await response.json()).toEqual(examplesOf(Plant));
});

test("the example of Error is a response that POST /plants gives", async () => {
  const { NewPlant = {}, Error = {} } = schemas;
  const app = testApp();
  await app.fetch(postPlant(examplesOf(NewPlant)));
  const response = await app.fetch(postPlant({ ...examplesOf(NewPlant), name: "Ivy" }));
  expect(response.status).toBe(409);
  expect(await response.json()).toEqual(examplesOf(Error));
});
