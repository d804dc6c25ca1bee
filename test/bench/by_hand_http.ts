import { fieldsOf, type HandPlant, isPlant } from "./by_hand_plant.ts";

/** What became of one plant. */
export type Outcome = "stored" | "conflict";

/**
 * `POST /plants` as one would write it on the routes of `Bun.serve`, without a framework: the
 * lowest bar. The checks are those a careful hand writes, not all of ours.
 *
 * @param add Stores a plant, and resolves once it is durable.
 */
export function serveByHand(add: (plant: HandPlant) => Promise<Outcome> | Outcome): void {
  const authorization = `Bearer ${process.env["AUTH_TOKENS"] ?? ""}`;

  async function create(request: Request): Promise<Response> {
    if (request.headers.get("authorization") !== authorization)
      return refused(401, 4011, "unauthorized");
    const plant: unknown = await request.json().catch(() => undefined);
    if (!isPlant(plant)) return refused(400, 4002, "invalid plant");

    if ((await add(plant)) === "conflict")
      return refused(409, 4091, "`id` is taken by a different plant; choose another id");
    return Response.json(fieldsOf(plant));
  }

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    development: false,
    routes: {
      "/plants": (request) =>
        request.method === "POST" ? create(request) : refused(405, 4051, "method not allowed"),
    },
    fetch: () => refused(404, 4041, "not found"),
  });

  process.stderr.write(`By hand listens on http://127.0.0.1:${server.port}\n`);
}

function refused(status: number, error: number, message: string): Response {
  return Response.json({ error, message }, { status });
}
