import { HttpServer } from "../../src/server/http_server.ts";
import { parseConfig } from "../../src/settings/settings.ts";
import { app, underTest } from "./app.ts";

// As the executable does it.
const error = () => new Response(null, { status: 500 });
const { signal } = new AbortController();
const server = new HttpServer(parseConfig({}, { port: "0" }), signal);
underTest(server.listen({ fetch: app.fetch, error }), () => server.stop(10_000));
