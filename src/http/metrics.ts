import { Elysia } from "elysia";

/** Renders what was measured, in Prometheus' text format. */
export type RenderMetrics = () => Promise<string>;

/** `GET /metrics`, for a scraper whose credentials are good. */
export function metrics(render: RenderMetrics) {
  return new Elysia({ name: "metrics" }).get(
    "/metrics",
    async () =>
      new Response(await render(), {
        headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8", "x-content-type-options": "nosniff" },
      }),
    { detail: { hide: true } },
  );
}
