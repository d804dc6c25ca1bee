import { parseConfig } from "../../src/settings/config.ts";
import { listen } from "../../src/server/http_server.ts";
import { app, underTest } from "./app.ts";

// As the executable does it.
const error = () => new Response(null, { status: 500 });
const server = await listen(parseConfig({}, { port: "0" }), { fetch: app.fetch, error });
underTest(server.address, () => server.stop(10_000));
