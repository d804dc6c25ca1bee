// What an import attribute makes of a file: its text, or the path where Bun finds it, also inside the executable.
declare module "*.sql" {
  const text: string;
  export default text;
}

declare module "swagger-ui-dist/*" {
  const path: string;
  export default path;
}

// prom-client has types for its index only.
declare module "prom-client/lib/counter.js" {
  export { Counter as default } from "prom-client";
}
declare module "prom-client/lib/gauge.js" {
  export { Gauge as default } from "prom-client";
}
declare module "prom-client/lib/histogram.js" {
  export { Histogram as default } from "prom-client";
}
declare module "prom-client/lib/registry.js" {
  export { Registry as default } from "prom-client";
}
