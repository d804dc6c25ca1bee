import { AsyncLocalStorage } from "node:async_hooks";
import { hostname } from "node:os";

import {
  type Context,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace as traceApi,
} from "@opentelemetry/api";
import {
  getNumberFromEnv,
  getStringFromEnv,
  parseTraceParent,
  setGlobalErrorHandler,
} from "@opentelemetry/core";
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
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";

import { reasonOf } from "../errors.ts";
import type { CompletedRequest } from "../http/observer.ts";

/** Where traces go, and under what name. */
export interface TracingOptions {
  /** The collector's address, without the path of traces. */
  readonly endpoint: URL;
  readonly serviceName: string;
  readonly serviceVersion: string;
  /** Called with the reason when an export failed, which loses its spans. */
  readonly onFailure: (reason: string) => void;
}

type Fetch = (request: Request) => Response | Promise<Response>;

/** Spans of requests, sent over OTLP (https://opentelemetry.io/docs/specs/otlp/). */
export type Tracing = ReturnType<typeof startTracing>;

/**
 * Starts sending spans to a collector. A span has only what is in {@linkcode CompletedRequest}: no
 * header, query, token or body leaves the process.
 */
export function startTracing({ endpoint, serviceName, serviceVersion, onFailure }: TracingOptions) {
  // The message only: the error has the whole response of the collector.
  const report = (error: unknown) => onFailure(reasonOf(error));
  setGlobalErrorHandler(report);

  // No variable sets these numbers: the exporter takes any, and a batch of no spans would never
  // end.
  const exporter = new OTLPTraceExporter({
    url: `${endpoint.href.replace(/\/+$/, "")}/v1/traces`,
    timeoutMillis: 10_000,
  });
  const processor = new BatchSpanProcessor({ exporter });

  // Later ones win: OTEL_RESOURCE_ATTRIBUTES over the host and the version, and the service's name
  // over both.
  const resource = defaultResource()
    .merge(resourceFromAttributes({ "host.name": hostname(), "service.version": serviceVersion }))
    .merge(detectResources({ detectors: [envDetector] }))
    .merge(resourceFromAttributes({ "service.name": serviceName }));

  const provider = new TracerProvider({
    resource,
    sampler: sampler(),
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer("plant-store");
  /** The span of the request that is being handled. */
  const spans = new AsyncLocalStorage<Span>();

  return {
    /** Makes a span of each request to an app. */
    trace:
      (fetch: Fetch): Fetch =>
      (request) => {
        const span = tracer.startSpan(request.method, { kind: SpanKind.SERVER }, parentOf(request));
        return spans.run(span, async () => {
          try {
            return await fetch(request);
          } finally {
            span.end();
          }
        });
      },

    /**
     * Gives the span of the current request its name, attributes and status. The error of a client
     * is not an error of the span (https://opentelemetry.io/docs/specs/semconv/http/http-spans).
     */
    onResponse({ method, path, status, requestId, caller }: CompletedRequest): void {
      const span = spans.getStore();
      if (!span?.isRecording()) return;

      span.setAttributes({
        "http.request.method": method,
        "http.response.status_code": status,
        "plant_store.request_id": requestId,
      });
      // https://opentelemetry.io/docs/specs/semconv/registry/attributes/user/
      if (caller !== undefined) span.setAttribute("user.id", caller.subject);
      if (path !== "other") span.updateName(`${method} ${path}`).setAttribute("http.route", path);
      if (status >= 500)
        span.setStatus({ code: SpanStatusCode.ERROR }).setAttribute("error.type", String(status));
    },

    /** Sends the spans that are left, which takes as long as the collector does. Never rejects. */
    close: (): Promise<void> => provider.shutdown().catch(report),
  };
}

/**
 * The header has 55 characters (https://www.w3.org/TR/trace-context); later versions may append to
 * it.
 */
const MAX_TRACEPARENT_LENGTH = 128;

/**
 * The span of the client, if it sent one. Ignores `tracestate` and `baggage`: this service calls no
 * other.
 */
function parentOf({ headers }: Request): Context {
  const header = headers.get("traceparent");
  if (header === null || header.length > MAX_TRACEPARENT_LENGTH) return ROOT_CONTEXT;

  const parent = parseTraceParent(header);
  return parent === null
    ? ROOT_CONTEXT
    : traceApi.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true });
}

/**
 * Which requests get a span, as the environment says. Without a known name, it is all of them,
 * unless the client's span says otherwise
 * (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#general-sdk-configuration).
 */
function sampler(): Sampler {
  const name = getStringFromEnv("OTEL_TRACES_SAMPLER") ?? "";
  const traceidratio = getNumberFromEnv("OTEL_TRACES_SAMPLER_ARG") ?? 1;

  const ratios: Partial<Record<string, number>> = { always_on: 1, always_off: 0, traceidratio };
  const ratio = ratios[name.replace(/^parentbased_/, "")];
  const root = new TraceIdRatioBasedSampler(ratio ?? 1);

  return ratio === undefined || name.startsWith("parentbased_")
    ? new ParentBasedSampler({ root })
    : root;
}
