/** What became of one plant. */
export type Outcome = "stored" | "conflict";

/** A plant as it came. */
export interface HandPlant {
  readonly id: number;
  readonly name: string;
  readonly tag?: string;
}

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

    const { name, tag } = plant;
    if ((await add(plant)) === "conflict")
      return refused(409, 4091, "`id` is taken by a different plant; choose another id");
    return Response.json(tag === undefined ? { name } : { name, tag });
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

/** Whether a value has the members of a plant. */
export function isPlant(value: unknown): value is HandPlant {
  if (typeof value !== "object" || value === null) return false;
  const { id, name, tag } = value as Record<string, unknown>;
  return (
    Number.isSafeInteger(id) &&
    typeof name === "string" &&
    (tag === undefined || typeof tag === "string")
  );
}
