import { serve } from "srvx/node";

import { app, underTest } from "./app.ts";

const server = serve({
  hostname: "127.0.0.1",
  port: 0,
  silent: true,
  gracefulShutdown: false,
  fetch: (request) => app.fetch(request),
});
await server.ready();
underTest(server.url.replace(/\/$/, ""), () => server.close());
