import type { Authenticate } from "../auth/authenticate.ts";
import { PlantStoreError } from "../errors.ts";
import type { GroupCommit } from "../group_commit/group_commit.ts";
import { createApp } from "../http/app.ts";
import { readiness } from "../http/health.ts";
import type { Observer } from "../http/observer.ts";
import { errorResponse } from "../http/responses.ts";
import type { Config } from "../settings/settings.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import { forwardedFor } from "./forwarded.ts";
import type { HttpServer } from "./http_server.ts";
import { swaggerUi } from "./swagger_ui.ts";

/** The parts of a service that its app stands on. */
export interface AppParts {
  readonly plants: GroupCommit;
  /** Commits a page of the database. */
  readonly probe: () => Promise<void>;
  readonly unready: () => readonly string[];
  readonly authenticate: Authenticate;
  readonly observer: Observer;
  readonly metrics: Metrics;
  readonly server: Pick<HttpServer, "peerOf" | "isDraining">;
  readonly stop: AbortSignal;
}

/** The app of a service. Loads the web framework: a start opens its database meanwhile. */
export function serviceApp(config: Config, parts: AppParts) {
  const { plants, authenticate, observer, metrics, server, stop } = parts;
  const { trustProxy } = config;

  const stored = readiness(parts.probe);
  const ready = () =>
    stop.aborted ? Promise.reject(new PlantStoreError("shutting_down")) : stored();

  metrics.registerReady(ready);

  return createApp({
    plants,
    ready,
    unready: parts.unready,
    authenticate,
    maxBodyBytes: config.maxBodyBytes,
    observer,
    corsOrigins: config.corsOrigins,
    clientAddress: (request) =>
      (trustProxy === "off" ? undefined : forwardedFor(request.headers, trustProxy)) ??
      server.peerOf(request),
    docsFiles: config.docs ? swaggerUi : undefined,
    renderMetrics: metrics.render,
    isShuttingDown: () => stop.aborted || server.isDraining(),
  });
}

/** The response if even the app fails. */
export function internalError(cause: unknown, observer: Observer): Response {
  const error = new PlantStoreError("internal", undefined, { cause });
  observer.onError(error, { requestId: "none", clientAddress: () => undefined });
  return errorResponse(error);
}
