import { Elysia } from "elysia";

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
    ({ request }) => {
      // Only browsers ask for a page.
      const isBrowser = request.headers.get("accept")?.includes("text/html") === true;
      return docs && isBrowser ? TO_DOCS.clone() : { name: "Plant Store", links };
    },
    { detail: { hide: true } },
  );
}

const TO_DOCS = new Response(null, {
  status: 302,
  headers: { location: "/swagger", vary: "accept", "x-content-type-options": "nosniff" },
});
