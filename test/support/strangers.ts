import { FIELD_EXAMPLES } from "../../src/database/contract/plant_store_contract.ts";
import {
  type FieldValue,
  kindOf,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
  plantOf,
} from "../../src/plant/plant.ts";
import { returned } from "./plants.ts";

/** An answer in the place of the server's, by somebody who has stored nothing. */
export interface Stranger {
  readonly who: string;
  readonly status: number;
  /** Its Content-Type, if it has one. */
  readonly type?: string;
  readonly location?: string;
  readonly retryAfter?: string;
  readonly body?: string;
}

const HTML = "text/html; charset=utf-8";
const JSON_TYPE = "application/json";
const SPRING =
  '{"timestamp":"2026-01-01T00:00:00Z","status":404,"error":"Not Found","message":"No static resource","path":"/plants"}';

/** A plant with every field. */
export const WHOLE: NewPlant = plantOf(1n, (field) => FIELD_EXAMPLES[kindOf(field)].at(-1));
const STORED = JSON.stringify(returned(WHOLE));

/** The same, but for one field. */
function changed(field: keyof Plant, value: FieldValue | undefined): string {
  const plant = plantOf(1n, (other) => (other === field ? value : WHOLE[other]));
  return JSON.stringify(returned(plant));
}

/** None of these says what became of that plant. */
export const STRANGERS: readonly Stranger[] = [
  { who: "a login page, by a redirect", status: 302, type: HTML, location: "/login" },
  { who: "another server, by a redirect that repeats the POST", status: 307, location: "/echo" },
  { who: "HTTPS, by a redirect", status: 301, type: HTML, location: "https://127.0.0.1:9/plants" },
  { who: "a page for maintenance", status: 200, type: HTML, body: "<title>Back soon</title>" },
  { who: "a captive portal", status: 511, type: HTML, body: "<title>Buy Wi-Fi</title>" },
  { who: "the sign-in page of an oauth2-proxy", status: 403, type: HTML, body: "<title>Sign in" },
  { who: "an oauth2-proxy, to a client of JSON", status: 401, type: JSON_TYPE, body: "{}" },
  { who: "another service", status: 200, type: JSON_TYPE, body: '{"status":"UP"}' },
  ...PLANT_FIELDS.flatMap((field) => [
    {
      who: `a cache, with another ${field}`,
      status: 200,
      type: JSON_TYPE,
      body: changed(field, FIELD_EXAMPLES[kindOf(field)].at(-2)),
    },
    {
      who: `a server of another version, without ${field}`,
      status: 200,
      type: JSON_TYPE,
      body: changed(field, undefined),
    },
  ]),
  { who: "a proxy that changes the media type", status: 200, type: HTML, body: STORED },
  { who: "a page that is called JSON", status: 200, type: JSON_TYPE, body: "<title>Back soon" },
  { who: "JSON of a text", status: 200, type: JSON_TYPE, body: '"Fern"' },
  { who: "JSON of null", status: 200, type: JSON_TYPE, body: "null" },
  { who: "JSON too deep to parse", status: 200, type: JSON_TYPE, body: "[".repeat(200_000) },
  { who: "nobody", status: 200 },
  { who: "a queue", status: 202, type: JSON_TYPE, body: STORED },
  { who: "another service's error", status: 404, type: JSON_TYPE, body: SPRING },
  {
    who: "an error of its own numbers",
    status: 400,
    type: JSON_TYPE,
    body: '{"error":400,"message":"no"}',
  },
  {
    who: "an Error of another status",
    status: 403,
    type: JSON_TYPE,
    body: '{"error":4091,"message":"no"}',
  },
  { who: "an Error without a message", status: 409, type: JSON_TYPE, body: '{"error":4091}' },
  { who: "Bun's parser", status: 400 },
  { who: "a gateway that waited for the body", status: 408, type: HTML },
  { who: "a gateway that got early data", status: 425, type: HTML },
  { who: "a gateway that counts requests", status: 429, type: "text/plain", body: "slow down" },
];

/**
 * Starts a server of strangers in front of a handler. Below `/always/N` stranger N answers every
 * request, below `/once/N` the first one only.
 */
export function startStrangers(
  handler: (request: Request) => Response | Promise<Response>,
  strangers: readonly Stranger[] = STRANGERS,
) {
  /** How many requests each path got. */
  const requests: Record<string, number> = {};

  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { method, headers } = request;
      const { pathname } = new URL(request.url);
      // An answer before the body's end could be lost to a reset.
      const sent = await request.bytes();
      const count = (requests[pathname] = (requests[pathname] ?? 0) + 1);
      if (pathname === "/login")
        return new Response("<title>Log in</title>", { headers: { "content-type": HTML } });
      if (pathname === "/echo")
        return new Response(sent, { headers: { "content-type": JSON_TYPE } });

      const [, mode, index] = pathname.split("/");
      const stranger = strangers[Number(index)];
      if (stranger === undefined || (mode === "once" && count > 1)) {
        return handler(
          new Request(new URL("/plants", request.url), { method, headers, body: sent }),
        );
      }

      const { status, type, location, retryAfter, body } = stranger;
      const said = { "content-type": type, location, "retry-after": retryAfter };
      return new Response(body, {
        status,
        headers: Object.entries(said).filter(
          (header): header is [string, string] => header[1] !== undefined,
        ),
      });
    },
  });

  return {
    always: (index: number) => `${server.url.origin}/always/${index}`,
    once: (index: number) => `${server.url.origin}/once/${index}`,
    /** How many requests a URL of these got. */
    requests: (url: string) => requests[`${new URL(url).pathname}/plants`] ?? 0,
    [Symbol.dispose]: () => void server.stop(true),
  };
}
