#!/usr/bin/env bun
// `plant-store` of the package, beside main.js. Node cannot parse that, and prints a SyntaxError.
if (process.versions.bun === undefined) {
  console.error("plant-store needs Bun: npm install --global --allow-scripts=bun bun");
  process.exit(1);
}

await import("./main.js");
