import { AsyncLocalStorage } from "node:async_hooks";
import { hostname } from "node:os";

import {
  type Attributes,
  type Context,
  createNoopMeter,
  diag,
  DiagLogLevel,
  type Meter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace as traceApi,
} from "@opentelemetry/api";
import { getStringFromEnv, parseTraceParent, setGlobalErrorHandler } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";

import type { MakeQueue } from "../database/adapter.ts";
import { PlantStoreError, reasonOf } from "../errors.ts";
import type { PlantStore } from "../group_commit/plant_store.ts";
import type { CompletedRequest } from "../http/observer.ts";
import type { NewPlant } from "../plant/plant.ts";
import type { Metric } from "./metrics.ts";
import { type OtelVariables, readOtelVariables } from "./tracing_variables.ts";

/** Options of {@linkcode startTracing}. */
export interface TracingOptions {
  /** The collector's address for traces. */
  readonly endpoint: URL;
  readonly serviceName: string;
  readonly serviceVersion: string;
  /** Warns of a failed export, which loses its spans, or of an ignored variable. */
  readonly warn: (message: string, properties: Readonly<Record<string, unknown>>) => void;
}

type Fetch = (request: Request) => Response | Promise<Response>;

/** Spans of requests, sent over OTLP (https://opentelemetry.io/docs/specs/otlp/). */
export type Tracing = ReturnType<typeof startTracing>;

/**
 * Starts sending spans to a collector. A span has only the facts in {@linkcode CompletedRequest}:
 * no header, query, token or body leaves the process.
 *
 * @throws {ConfigError} If a variable of OpenTelemetry cannot be used.
 */
export function startTracing(options: TracingOptions) {
  const { endpoint, serviceName, serviceVersion, warn } = options;
  const variables = readOtelVariables((name) => getStringFromEnv(name)?.trim());
  if (variables.ignored.length > 0)
    warn("OpenTelemetry variables ignored", { variables: variables.ignored });

  // Omit the password, and the query, which may have a key.
  const collector = endpoint.origin + endpoint.pathname;
  const fail = (reason: string) =>
    warn("Trace export failed", { reason: `${reason} (${collector})` });
  // Only the message: the error contains the collector's whole response.
  const report = (error: unknown) => fail(reasonOf(error));
  setGlobalErrorHandler(report);
  forwardWarnings((reason) => warn("OpenTelemetry warning", { reason }));

  const lost = countLost();
  const processor = new ServiceSpanProcessor({
    exporter: new OTLPTraceExporter({ url: endpoint.href }),
    ...variables.batches,
    selfObsMeterProvider: lost.meterProvider,
  });

  // OTEL_RESOURCE_ATTRIBUTES overrides these, and the service's name overrides both.
  const ofProcess = {
    "host.name": hostname(),
    "service.version": serviceVersion,
    "service.instance.id": crypto.randomUUID(),
  };
  const resource = defaultResource()
    .merge(resourceFromAttributes(ofProcess))
    .merge(detectResources({ detectors: [envDetector] }))
    .merge(resourceFromAttributes({ "service.name": serviceName }));

  const provider = new TracerProvider({
    resource,
    sampler: samplerOf(variables),
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer("plant-store", serviceVersion, { schemaUrl: SCHEMA_URL });
  /** The span of the request that is being handled. */
  const spans = new AsyncLocalStorage<Span>();

  return {
    /** Where the spans are sent, for messages. */
    collector,

    /** Wraps an app so that each request has a span. */
    trace:
      (fetch: Fetch): Fetch =>
      (request) => {
        const { method } = request;
        const attributes = {
          ...(METHODS.has(method)
            ? { "http.request.method": method }
            : { "http.request.method": "_OTHER", "http.request.method_original": method }),
          "url.scheme": request.url.startsWith("https:") ? "https" : "http",
        };
        const parent = variables.continuesTraces ? parentOf(request) : ROOT_CONTEXT;
        const span = tracer.startSpan(
          nameOf(method),
          { kind: SpanKind.SERVER, attributes },
          parent,
        );

        return spans.run(span, async () => {
          try {
            return await fetch(request);
          } finally {
            span.end();
          }
        });
      },

    /**
     * Wraps a queue so that each plant has a span, as a child of its request's. The span shows the
     * time in the queue and in the commit.
     *
     * @param makeQueue Creates a queue for a store.
     */
    tracePlants:
      (makeQueue: MakeQueue): MakeQueue =>
      (store, maxInFlight) => {
        const waiting = new Map<NewPlant, { readonly span: Span; readonly since: number }>();

        const timed: PlantStore = {
          probe: () => store.probe(),
          async add(plants, addOptions) {
            const start = performance.now();
            const traced = plants.flatMap((plant) => waiting.get(plant) ?? []);
            for (const { span, since } of traced) {
              span.setAttribute("plant_store.queue.duration", (start - since) / 1_000);
              span.setAttribute("plant_store.batch.size", plants.length);
            }

            try {
              return await store.add(plants, addOptions);
            } finally {
              const duration = (performance.now() - start) / 1_000;
              for (const { span } of traced)
                span.setAttribute("plant_store.commit.duration", duration);
            }
          },
        };
        const commits = makeQueue(timed, maxInFlight);

        return {
          size: () => commits.size(),
          fill: () => commits.fill(),
          drain: (timeoutMs) => commits.drain(timeoutMs),
          async add(plant) {
            const request = spans.getStore();
            if (!request?.isRecording()) return commits.add(plant);

            const context = traceApi.setSpan(ROOT_CONTEXT, request);
            const span = tracer.startSpan("commit", {}, context);
            waiting.set(plant, { span, since: performance.now() });

            try {
              return await commits.add(plant);
            } catch (error) {
              const type = error instanceof PlantStoreError ? error.code : "internal";
              span.setStatus({ code: SpanStatusCode.ERROR }).setAttribute("error.type", type);
              throw error;
            } finally {
              waiting.delete(plant);
              span.end();
            }
          },
        };
      },

    /**
     * Sets the name, attributes and status of the current request's span. A client's error does not
     * mark the span as failed (https://opentelemetry.io/docs/specs/semconv/http/http-spans).
     */
    onResponse({ method, path, status, requestId, caller }: CompletedRequest): void {
      const span = spans.getStore();
      if (!span?.isRecording()) return;

      span.setAttributes({
        "http.response.status_code": status,
        "plant_store.request_id": requestId,
      });
      // https://opentelemetry.io/docs/specs/semconv/registry/attributes/user/
      if (caller !== undefined) span.setAttribute("user.id", caller.subject);
      if (caller?.issuer !== undefined) span.setAttribute("plant_store.issuer", caller.issuer);
      if (path !== "other") {
        span.updateName(`${nameOf(method)} ${path}`);
        span.setAttributes({ "http.route": path, "url.path": path });
      }
      if (status >= 500)
        span.setStatus({ code: SpanStatusCode.ERROR }).setAttribute("error.type", String(status));
    },

    /** Returns the trace id of the current request, if its span is sent. */
    traceId(): string | undefined {
      const span = spans.getStore();
      return span?.isRecording() ? span.spanContext().traceId : undefined;
    },

    metrics: (): Metric[] => [
      {
        name: "plant_store_spans_lost_total",
        help: "Spans that the queue had no room for, or whose export failed",
        type: "counter",
        value: lost.spans(),
      },
    ],

    /** Sends the remaining spans, however long the collector takes. Never rejects. */
    close: (): Promise<void> => provider.shutdown().catch(report),
  };
}

/** The version of the attributes' names. */
const SCHEMA_URL = "https://opentelemetry.io/schemas/1.28.0";

/** The paths that supervisors and Prometheus poll. */
const PROBES: ReadonlySet<unknown> = new Set(["/livez", "/readyz", "/metrics"]);

/** Sends all spans except those of successful probes. */
class ServiceSpanProcessor extends BatchSpanProcessor {
  override onEnd(span: Parameters<BatchSpanProcessor["onEnd"]>[0]): void {
    const isFailure = span.status.code === SpanStatusCode.ERROR;
    if (isFailure || !PROBES.has(span.attributes["http.route"])) super.onEnd(span);
  }
}

/** Counts the spans that the SDK loses, with the SDK's own metrics. */
function countLost() {
  let spans = 0;
  // A separate meter: the no-op meter is a singleton, which the exporter uses too.
  const meter = Object.assign(Object.create(createNoopMeter()) as Meter, {
    createCounter: () => ({
      add(count: number, attributes: Attributes = {}) {
        if (attributes["error.type"] !== undefined) spans += count;
      },
    }),
  });

  return { meterProvider: { getMeter: () => meter }, spans: () => spans };
}

/**
 * The methods that a span's name may have
 * (https://opentelemetry.io/docs/specs/semconv/http/http-spans).
 */
const METHODS: ReadonlySet<string> = new Set(
  "CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT QUERY TRACE".split(" "),
);

/** Returns the name of a span without a route. */
function nameOf(method: string): string {
  return METHODS.has(method) ? method : "HTTP";
}

/**
 * Forwards the SDK's own warnings, for example of an unusable variable, or of rejected spans. They
 * may contain bytes of the collector's response.
 */
function forwardWarnings(warn: (reason: string) => void): void {
  const report = (...words: unknown[]) =>
    warn(words.filter((word) => !ArrayBuffer.isView(word)).join(" "));
  const none = () => {};
  diag.setLogger(
    { error: report, warn: report, info: none, debug: none, verbose: none },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
}

function samplerOf({ sampling: { ratio, asParent } }: OtelVariables) {
  const root = new TraceIdRatioBasedSampler(ratio);
  return asParent ? new ParentBasedSampler({ root }) : root;
}

/**
 * Returns a context with the client's span, if the request has one
 * (https://www.w3.org/TR/trace-context). Ignores `tracestate` and `baggage`, because this service
 * calls no other service.
 */
function parentOf({ headers }: Request): Context {
  const parent = parseTraceParent(headers.get("traceparent") ?? "");
  return parent === null
    ? ROOT_CONTEXT
    : traceApi.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true });
}
