import { Elysia } from "elysia";
import { mediaTypeWeight } from "./negotiation.ts";

/** `GET /`: redirects a browser to the documentation, and gives any other client the links. */
export function home({ docs }: { docs: boolean }) {
  const links = {
    plants: "/plants",
    ...(docs && { documentation: "/swagger", openapi: "/swagger/json" }),
    liveness: "/livez",
    readiness: "/readyz",
  };
  return new Elysia({ name: "home" }).get(
    "/",
    ({ request, set }) => {
      if (!docs) return { name: "Plant Store", links };
      set.headers["vary"] = "accept";
      return wantsPage(request.headers.get("accept")) ? TO_DOCS.clone() : { name: "Plant Store", links };
    },
    { detail: { hide: true } },
  );
}

/** Only browsers ask for a page rather than for anything else. */
function wantsPage(accept: string | null): boolean {
  return mediaTypeWeight("text/html", accept) > mediaTypeWeight("application/json", accept);
}

const TO_DOCS = new Response(null, {
  status: 302,
  headers: { location: "/swagger", "x-content-type-options": "nosniff" },
});
