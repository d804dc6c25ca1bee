import { app, underTest } from "./app.ts";

/** What is used of Deno here. Its types are not those of Bun, which this checkout is checked with. */
declare const Deno: {
  serve(
    options: { hostname: string; port: number; onListen: () => void },
    handler: (request: Request) => Response | Promise<Response>,
  ): { addr: { port: number }; shutdown(): Promise<void> };
};

const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, app.fetch);
underTest(`http://127.0.0.1:${server.addr.port}`, () => server.shutdown());
