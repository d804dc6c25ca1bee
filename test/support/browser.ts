import { missing } from "./missing.ts";

const BROWSERS = ["chromium", "chromium-browser", "google-chrome"];

/** The browser on PATH; empty if there is none. */
export const BROWSER = BROWSERS.map((name) => Bun.which(name)).find((path) => path !== null) ?? "";

/** Whether there is no browser here: says so for what, or fails in CI. */
export function skipsBrowser(what: string): boolean {
  return BROWSER === "" && missing(`${what}: no ${BROWSERS.join(", ")} on PATH`);
}
