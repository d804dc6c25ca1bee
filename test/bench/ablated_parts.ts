import type { Mutation } from "../support/mutant.ts";

/** A part of storing a plant, and how to take it out of the source. */
export interface AblatedPart {
  readonly name: string;
  readonly without: readonly Mutation[];
}

/** The parts, on the way of a plant. What each one is for is in the guide beside this file. */
export const ABLATED_PARTS: readonly AblatedPart[] = [
  {
    name: "Host and path",
    without: [
      change("http/responses.ts", "!hasValidHost(request)", "false"),
      change("http/responses.ts", "findAndNormalize(request, findPath)", 'findPath("/plants")'),
    ],
  },
  {
    name: "request id",
    without: [
      change("http/responses.ts", "requestIdOf(request)", '""'),
      change("http/responses.ts", "response.headers.set(REQUEST_ID, requestId);", ""),
    ],
  },
  {
    name: "headers of every response",
    without: [
      change("http/responses.ts", "Response.json(result, SUCCESS)", "Response.json(result)"),
    ],
  },
  {
    name: "token and scope",
    without: [
      change("http/bearer_guard.ts", "return requireAccess(", "return;\n      requireAccess("),
    ],
  },
  {
    name: "media type, size, UTF-8, exact id, check",
    without: [
      change(
        "http/plants.ts",
        "parsePlant(await readBody(request, headers))",
        "toPlant(await request.json())",
      ),
      change(
        "http/plants.ts",
        "export function plantsApi(",
        "const toPlant = (body: any) => Object.assign(body, { id: BigInt(body.id) });\n\nexport function plantsApi(",
      ),
    ],
  },
  {
    name: "deadline",
    without: [
      change(
        "group_commit/group_commit.ts",
        "if (this.#clearTimer === undefined) this.#startTimer(timeoutMs);",
        "",
      ),
    ],
  },
  {
    name: "linger",
    without: [
      change(
        "group_commit/next_step.ts",
        "return settled < 2 ? 0 : settled + pending;",
        "return 0;",
      ),
    ],
  },
  {
    name: "batches as text",
    without: [
      change(
        "database/sqlite/sqlite_adapter.ts",
        'send(encodeBatch(plants, timeoutMs)) as ReturnType<PlantStore["add"]>',
        'call("addPlants", plants, timeoutMs)',
      ),
      change(
        "database/sqlite/writer_worker.ts",
        "probe: () => database.plants.probe(),",
        "probe: () => database.plants.probe(),\n  addPlants: (plants: any[], timeoutMs: number) => database.plants.add(plants, { timeoutMs }),",
      ),
    ],
  },
  {
    name: "look at the files after a commit",
    without: [
      change(
        "database/sqlite/store.ts",
        "const loss = lookAtFiles() ?? lock?.look();",
        "const loss = undefined as { reason: string; isFinal: boolean } | undefined;",
      ),
    ],
  },
  {
    name: "checkpoints",
    without: [change("database/sqlite/store.ts", "checkpoints.schedule(plants);", "")],
  },
  {
    name: "response checked by its schema",
    without: [change("http/plants.ts", '          200: "Plant",\n', "")],
  },
  {
    name: "metrics",
    without: [
      change("telemetry/service_observer.ts", "metrics.countResponse(completed);", ""),
      change("telemetry/service_observer.ts", "metrics.countCommit(commit);", ""),
    ],
  },
  {
    name: "everything around the app",
    without: [
      change("http/app.ts", "const fetch = respond({", "const fetch = handle;\n  void respond({"),
    ],
  },
];

function change(file: string, from: string, to: string): Mutation {
  return { file: `src/${file}`, from, to };
}
