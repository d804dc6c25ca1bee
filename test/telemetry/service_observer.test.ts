import { expect, test } from "bun:test";

import { type ErrorCode, ERRORS, PlantStoreError } from "../../src/errors.ts";
import type { CompletedRequest } from "../../src/http/observer.ts";
import { createMetrics } from "../../src/telemetry/metrics.ts";
import { createObserver } from "../../src/telemetry/service_observer.ts";
import { memoryLog } from "../support/memory_log.ts";

const COMPLETED = { method: "POST", path: "/plants", status: 200 };
const REQUEST = { requestId: "1", clientAddress: () => "192.0.2.1" };

/** What traces add to each line of a request. */
const ADDED = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736" };

function observed({ accessLog = false } = {}) {
  const memory = memoryLog();
  const metrics = createMetrics();
  const responses: CompletedRequest[] = [];
  const tracing = {
    traceId: () => ADDED.traceId,
    onResponse: (completed: CompletedRequest) => void responses.push(completed),
  };
  return {
    ...memory,
    metrics,
    responses,
    observer: createObserver({ ...memory, metrics, tracing }, { accessLog }),
  };
}

/** What the log has of an error with a cause and a reason; of the others it has nothing. */
const LOGGED: Partial<Record<ErrorCode, object>> = {
  missing_credentials: {
    level: "WARN",
    message: "Refused credentials",
    reason: "unknown",
    client: "192.0.2.1",
  },
  invalid_credentials: {
    level: "WARN",
    message: "Refused credentials",
    reason: "unknown",
    client: "192.0.2.1",
  },
  insufficient_scope: {
    level: "WARN",
    message: "Refused credentials",
    reason: "unknown",
    client: "192.0.2.1",
  },
  queue_full: {
    level: "WARN",
    message: "Cannot validate credentials",
    reason: "unknown",
    client: "192.0.2.1",
  },
  storage_unavailable: {
    level: "ERROR",
    message: "Storage unavailable",
    cause: { message: "disk full" },
  },
  internal: { level: "ERROR", message: "Internal error", cause: { message: "disk full" } },
};

test.each(Object.keys(ERRORS) as ErrorCode[])("what the log has of %s", (code) => {
  using memory = observed();
  const { observer, lines } = memory;
  observer.onError(
    new PlantStoreError(code, undefined, { cause: "disk full", reason: "unknown" }),
    REQUEST,
  );

  expect(lines).toEqual(
    code in LOGGED ? [expect.objectContaining({ ...LOGGED[code], ...ADDED, requestId: "1" })] : [],
  );
});

test("a full queue is logged without a reason", () => {
  using memory = observed();
  const { observer, lines } = memory;
  observer.onError(new PlantStoreError("queue_full"), REQUEST);
  expect(lines).toEqual([{ level: "WARN", message: "Queue full", requestId: "1", ...ADDED }]);
});

test("an error without a cause is logged as the cause itself", () => {
  using memory = observed();
  const { observer, lines } = memory;
  const message = "storage did not finish in time";
  observer.onError(new PlantStoreError("storage_unavailable", message), REQUEST);

  const cause = { name: "PlantStoreError", message, code: "storage_unavailable" };
  expect(lines).toMatchObject([{ level: "ERROR", message: "Storage unavailable", cause }]);
});

test("refusals are counted by their reason without what it quotes", () => {
  using memory = observed();
  const { observer, lines } = memory;
  for (let i = 0; i < 20; i++) {
    const reason = `wrong audience: expected "plant-store", got "${i}"`;
    observer.onError(new PlantStoreError("invalid_credentials", undefined, { reason }), REQUEST);
  }
  expect(lines).toHaveLength(10);
  expect(lines[9]).toMatchObject({ reason: 'wrong audience: expected "plant-store", got "9"' });
});

test("a flood of refusals for one reason hides no other line, and only ten of its lines are written", () => {
  const { observer, lines, [Symbol.dispose]: end } = observed({ accessLog: true });
  let lookedUp = 0;
  const clientAddress = () => `192.0.2.${++lookedUp}`;

  const refuse = (reason: string) => {
    const error = new PlantStoreError("invalid_credentials", undefined, { reason });
    observer.onError(error, { requestId: "1", clientAddress });
  };

  for (let i = 0; i < 50; i++) {
    refuse("unknown");
    observer.onResponse({ ...REQUEST, ...COMPLETED, durationMs: 1 });
  }

  expect(lookedUp).toBe(10);

  refuse("revoked");
  end();
  expect(lines.filter(({ reason }) => reason === "unknown")).toHaveLength(11);
  expect(lines.filter(({ reason }) => reason === "revoked")).toHaveLength(1);
  expect(lines.filter(({ message }) => message === "Request completed")).toHaveLength(50);
  expect(lines.at(-1)).toMatchObject({ level: "WARN", reason: "unknown", suppressed: 40 });
});

test("every response is counted and traced, and logged only if the access log is on", async () => {
  for (const accessLog of [true, false]) {
    using memory = observed({ accessLog });
    const { observer, metrics, lines, responses } = memory;
    const caller = { subject: "gardener", issuer: "https://id.example.org/" };
    const completed = { ...REQUEST, ...COMPLETED, durationMs: 1.23456, caller };
    observer.onResponse(completed);
    expect(responses).toEqual([completed]);

    const line = {
      level: "INFO",
      message: "Request completed",
      ...COMPLETED,
      durationMs: 1.235,
      requestId: "1",
      ...ADDED,
      client: "192.0.2.1",
      ...caller,
    };

    expect(lines).toEqual(accessLog ? [line] : []);
    expect(await metrics.render()).toContain(
      'plant_store_requests_total{path="/plants",method="POST",status="200"} 1\n',
    );
  }
});

test("the access log has the number of an error", () => {
  using memory = observed({ accessLog: true });
  memory.observer.onResponse({ ...REQUEST, ...COMPLETED, status: 400, error: 4002, durationMs: 1 });
  expect(memory.lines).toMatchObject([{ status: 400, error: 4002 }]);
});

test("every commit is counted, and logged if it took more than a second", async () => {
  using memory = observed();
  const { observer, metrics, lines } = memory;
  for (const durationMs of [1_000, 1_001])
    observer.onCommit({ outcomes: ["added", "conflict"], durationMs });
  expect(lines).toEqual([{ level: "WARN", message: "Slow commit", plants: 2, durationMs: 1_001 }]);
  expect(await metrics.render()).toContain("plant_store_batch_plants_sum 4\n");
});
