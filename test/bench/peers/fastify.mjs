// Fastify on Node with better-sqlite3, one transaction a request; with `node:sqlite` where the argument says so.
import { timingSafeEqual } from "node:crypto";
import Fastify from "fastify";

const database = await open(process.argv[2]);
for (const setting of ["busy_timeout = 5000", "journal_mode = WAL", "synchronous = FULL"]) {
  database.exec(`PRAGMA ${setting}`);
}
database.exec("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT) STRICT");
const insert = database.prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
const select = database.prepare("SELECT name, tag FROM plants WHERE id = ?");

const authorization = Buffer.from(`Bearer ${process.env.AUTH_TOKENS}`);
const plant = { name: { type: "string" }, tag: { type: "string" } };
const schema = {
  body: { type: "object", required: ["id", "name"], properties: { id: { type: "integer" }, ...plant } },
  response: { 200: { type: "object", properties: plant } },
};

const app = Fastify();
app.addHook("onRequest", async (request, reply) => {
  const given = Buffer.from(request.headers.authorization ?? "");
  if (given.length === authorization.length && timingSafeEqual(given, authorization)) return;
  return reply.code(401).send({ error: 4011, message: "unauthorized" });
});
app.post("/plants", { schema }, (request, reply) => {
  const { id, name, tag } = request.body;
  if (Number(insert.run(id, name, tag ?? null).changes) === 0) {
    const stored = select.get(id);
    if (stored?.name !== name || stored.tag !== (tag ?? null)) {
      return reply.code(409).send({ error: 4091, message: "conflict" });
    }
  }
  return reply.send({ name, tag });
});
console.error(`listens on ${await app.listen({ host: "127.0.0.1", port: 0 })}`);

async function open(driver) {
  if (driver === "node:sqlite") return new (await import("node:sqlite")).DatabaseSync("plants.db");
  return new (await import("better-sqlite3")).default("plants.db");
}
