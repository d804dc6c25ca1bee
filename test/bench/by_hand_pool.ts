// What PostgreSQL is usually given: one INSERT a request, over a pool of ten connections.
// DATABASE_URL, and the arguments of serve.
import { SQL } from "bun";

const { DATABASE_URL = "", AUTH_TOKENS = "" } = process.env;
const { username, pathname } = new URL(DATABASE_URL);
const sql = new SQL({ url: DATABASE_URL, username, database: pathname.slice(1), max: 10 });
await sql`CREATE TABLE IF NOT EXISTS plants (id bigint PRIMARY KEY, name text NOT NULL, tag text)`;

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.headers.get("authorization") !== `Bearer ${AUTH_TOKENS}`)
      return new Response(null, { status: 401 });
    const { id, name, tag } = (await request.json()) as { id: number; name: string; tag?: string };
    await sql`INSERT INTO plants (id, name, tag) VALUES (${id}, ${name}, ${tag ?? null}) ON CONFLICT DO NOTHING`;
    return Response.json({ name, tag });
  },
});
console.error(`listens on ${server.url.origin}`);
