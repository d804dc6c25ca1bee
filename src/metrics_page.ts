import { Elysia } from "elysia";
import { type Authenticate, bearerGuard } from "./auth.ts";

/** Renders what was measured, in Prometheus' text format. */
export type RenderMetrics = () => Promise<string>;

/** `GET /metrics`, for a scraper with a token. */
export function metricsPage(render: RenderMetrics, authenticate: Authenticate) {
  return new Elysia({ name: "metrics" }).use(bearerGuard(authenticate)).get(
    "/metrics",
    async () =>
      new Response(await render(), {
        headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8", "x-content-type-options": "nosniff" },
      }),
    { detail: { hide: true } },
  );
}
