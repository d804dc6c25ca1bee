import type * as Generator from "@elysiajs/swagger";
import { Elysia } from "elysia";
import type { OpenAPIV3 } from "openapi-types";

import { TOKENS_MAX_AGE_MS } from "../auth/token_store.ts";
import { type ErrorCode, ERRORS, statusOf } from "../errors.ts";
import { isRequired, PLANT_FIELDS } from "../plant/plant.ts";
import { type Access, PATHS } from "./paths.ts";
import { EXAMPLE, plantsApi } from "./plants.ts";
import { EXTRA_HEADERS } from "./responses.ts";

/** The version of the API, from its contract. The program has its own version. */
const API_VERSION = "1.0.0";

const DOCUMENTATION: Omit<OpenAPIV3.Document, "openapi" | "paths" | "servers"> = {
  info: {
    title: "Plant Store",
    version: API_VERSION,
    description: [
      "One operation stores a plant: a 200 means that it is on disk, and the same plant can be sent again.",
      "No operation reads plants: the operator exports them, or queries the database.",
    ].join(" "),
    contact: { name: "The operator of this server" },
    license: { name: "MIT", url: "https://opensource.org/license/mit" },
  },

  tags: [{ name: "plants", description: "Store plants" }],

  components: {
    securitySchemes: {
      bearer: {
        type: "http",
        scheme: "bearer",
        description: "Paste the token alone, without `Bearer`.",
      },
    },
  },
};

/** `build:module` replaces this global with the document. Nothing else sets it. */
interface Built {
  readonly OPENAPI_DOCUMENT?: OpenAPIV3.Document;
}

/**
 * Returns the OpenAPI document. The module contains it; the executable generates it. The generator
 * is larger than the rest of the module.
 *
 * @param server The URL of the API; may be relative to the document (OpenAPI 3.0.4, section 4.8.5).
 */
export async function openApiDocument(server: OpenAPIV3.ServerObject): Promise<OpenAPIV3.Document> {
  // The generator takes longer to load than the rest of the app. With the global set, a bundler sees
  // that this `import()` is never reached, and leaves the generator out.
  const document =
    (globalThis as Built).OPENAPI_DOCUMENT ??
    (await generateDocument(await import("@elysiajs/swagger")));
  return { ...document, servers: [server] };
}

/**
 * Generates the document from the schemas of the routes. What `@elysiajs/swagger` generates is not
 * valid OpenAPI 3.0: the missing parts are filled in from the table of errors.
 */
async function generateDocument({ swagger }: typeof Generator): Promise<OpenAPIV3.Document> {
  // These routes are only described, never called.
  const api = plantsApi({ add: async () => "added" }, async () => new Uint8Array());
  const generator = new Elysia().use(swagger({ documentation: DOCUMENTATION })).use(api);

  const response = await generator.handle(new Request("http://localhost/swagger/json"));
  const document: OpenAPIV3.Document = JSON.parse(await response.text(), withoutId);

  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, access] of Object.entries(PATHS[path as keyof typeof PATHS] ?? {})) {
      const operation = operations?.[method.toLowerCase() as "get"];
      if (operation !== undefined) completeOperation(operation, access);
    }
  }
  return document;
}

/** Omits `$id`: it is the name of a schema in Elysia, but not a key of OpenAPI 3.0. */
function withoutId(key: string, value: unknown): unknown {
  return key === "$id" ? undefined : value;
}

/** Fills in the parts of an operation that the generator does not know. */
function completeOperation(operation: OpenAPIV3.OperationObject, access: Access): void {
  operation.description = `${operation.description}\n\n${OPERATION_HELP}`;
  if (access !== "public") operation.security = [{ bearer: [] }];
  if (operation.requestBody !== undefined)
    onlyJson(operation.requestBody as OpenAPIV3.RequestBodyObject, REQUEST_EXAMPLES);

  for (const [status, response] of Object.entries(operation.responses)) {
    completeResponse(Number(status), response as OpenAPIV3.ResponseObject);
  }
  operation.responses["default"] = OTHER_ERROR;
}

/**
 * The text after the description of every operation. It lists all causes, even those that belong to
 * no operation.
 */
const OPERATION_HELP = [
  "To try it, click Authorize and paste a token. The first start prints one; `plant-store token create NAME` creates more.",
  "",
  "<details><summary>Retries and errors</summary>",
  "",
  "After a lost connection or a 5xx, send the same plant again. After a 503, wait for `Retry-After` seconds.",
  "After a 4xx with an Error, correct the request first. Any other 4xx is not from this server: send the same plant again.",
  `A new token is accepted within ${TOKENS_MAX_AGE_MS / 1_000} seconds.`,
  "Every response has an `X-Request-Id`, the request's own or a new one. The server's log names it.",
  "",
  "Every error is exactly `error` and `message`. These are all values of `error`:",
  "",
  errorTable(),
  "",
  "</details>",
].join("\n");

function errorTable(): string {
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const rows = codes.map(
    (code) => `| ${statusOf(code)} | ${ERRORS[code].error} | ${ERRORS[code].situation} |`,
  );
  return ["| status | error | when |", "| --- | --- | --- |", ...rows].join("\n");
}

/** Removes form data and plain text, which the generator also lists, but which return 415. */
function onlyJson(
  holder: OpenAPIV3.RequestBodyObject | OpenAPIV3.ResponseObject,
  examples: Record<string, OpenAPIV3.ExampleObject> | undefined,
): void {
  const json = holder.content?.["application/json"];
  holder.content = { "application/json": { ...json, ...(examples && { examples }) } };
}

/** Fills in the description, the headers and the examples of a response. */
function completeResponse(status: number, response: OpenAPIV3.ResponseObject): void {
  const codes = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => statusOf(code) === status);
  // First: the style of Swagger UI's page hides the first header, because every response has it.
  response.headers = { "X-Request-Id": REQUEST_ID_HEADER, ...headersOf(codes) };
  if (codes.length === 0) return onlyJson(response, responseExamples(response));

  response.description = codes
    .map((code) => `${ERRORS[code].error}: ${ERRORS[code].situation}`)
    .join("\n\n");

  const examples = codes.map((code) => {
    const { error, message } = ERRORS[code];
    return [code, { summary: String(error), value: { error, message } }];
  });
  onlyJson(response, Object.fromEntries(examples));
}

const REQUIRED = PLANT_FIELDS.filter(isRequired).map((field) => [field, EXAMPLE[field]]);

/** Example requests. No id is past 2^53: Swagger UI would round it. */
const REQUEST_EXAMPLES = {
  all_fields: { summary: "A plant with all fields", value: EXAMPLE },
  required_fields: {
    summary: "A plant with the required fields only",
    value: { id: 2, ...Object.fromEntries(REQUIRED) },
  },
};

/** The responses to {@linkcode REQUEST_EXAMPLES}. */
const RESPONSE_EXAMPLES = Object.fromEntries(
  Object.entries(REQUEST_EXAMPLES).map(([name, { summary, value }]) => {
    const { id: _id, ...plant } = value;
    return [name, { summary, value: plant }];
  }),
);

/**
 * Returns the examples of a response with a plant. In other schemas, the properties have examples.
 */
function responseExamples({ content }: OpenAPIV3.ResponseObject) {
  const schema = content?.["application/json"]?.schema as OpenAPIV3.ReferenceObject | undefined;
  return schema?.$ref === "#/components/schemas/Plant" ? RESPONSE_EXAMPLES : undefined;
}

/**
 * Returns the headers that a response to one of these causes may have, with their values by cause.
 */
function headersOf(codes: readonly ErrorCode[]): Record<string, OpenAPIV3.HeaderObject> {
  const headers: Record<string, OpenAPIV3.HeaderObject> = {};

  for (const code of codes) {
    for (const [name, value] of Object.entries(EXTRA_HEADERS[code] ?? {})) {
      const examples = { ...headers[name]?.examples, [ERRORS[code].error]: { value } };
      headers[name] = {
        description: DESCRIPTIONS[name] ?? name,
        schema: { type: "string" },
        examples,
      };
    }
  }

  return headers;
}

const REQUEST_ID_HEADER: OpenAPIV3.HeaderObject = {
  description:
    "Names this request in the server's log: the request's own X-Request-Id, or a new one",
  schema: { type: "string" },
  example: "0af76519-16cd-43dd-8448-eb211c80319c",
};

/** For generated clients: how to read an error that the contract does not list. */
const OTHER_ERROR: OpenAPIV3.ResponseObject = {
  description: "Any other error",
  headers: { "X-Request-Id": REQUEST_ID_HEADER },
  content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
};

/** The descriptions of response headers. */
const DESCRIPTIONS: Readonly<Record<string, string>> = {
  "WWW-Authenticate": "Which credentials to send",
  "Retry-After": "How many seconds to wait before a retry",
  Connection: "The connection is closed after this response",
};
