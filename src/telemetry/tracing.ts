import { getCurrentSpan, opentelemetry } from "@elysiajs/opentelemetry";
import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from "@opentelemetry/sdk-trace-base";
import { withDeadline } from "../async/deadline.ts";
import type { CompletedRequest } from "../http/observer.ts";

/** Where traces go, and under what name. */
export interface TracingOptions {
  /** The collector's address, without the path of traces. */
  readonly endpoint: URL;
  readonly serviceName: string;
  /** Called with the reason when the collector did not take some spans: they are lost. */
  readonly onFailure: (reason: string) => void;
}

/** Tracing, once it has started. */
export type Tracing = ReturnType<typeof startTracing>;

/**
 * Starts tracing for the whole process, so it is to be called once: a span a request, with one for each of Elysia's
 * steps, sent over OTLP (https://opentelemetry.io/docs/specs/otlp/).
 */
export function startTracing({ endpoint, serviceName, onFailure }: TracingOptions) {
  const url = `${endpoint.href.replace(/\/+$/, "")}/v1/traces`;
  const responses: CompletedRequests = new WeakMap();
  const exporter = withoutSecrets(new OTLPTraceExporter({ url }), responses, onFailure);
  const processor = new BatchSpanProcessor(exporter);
  return {
    /** To be used by the app before any route. */
    plugin: opentelemetry({ serviceName, spanProcessors: [processor] })
      // Under a trace, Elysia gives the response to `mapResponse` only where there is a hook of this kind.
      .onAfterHandle({ as: "global" }, () => {}),
    /** Ties a response to the span of its request, while that is the active one. */
    linkToSpan(completed: CompletedRequest): void {
      const span = getCurrentSpan();
      if (span !== undefined) responses.set(span, completed);
    },
    /** Sends the spans that are left; what the collector has not taken after `timeoutMs` milliseconds is lost. */
    async close(timeoutMs: number): Promise<void> {
      // The exporter has passed its failures to `onFailure` already.
      const sent = processor.shutdown().catch(() => {});
      await withDeadline(sent, timeoutMs, () => onFailure("the collector was too slow for the last spans"));
    },
  };
}

/** The response to each request, by its span. The plugin's own is wrong: it takes a 409 for a 500, a 404 for a 200. */
type CompletedRequests = WeakMap<object, CompletedRequest>;

function withoutSecrets(
  exporter: SpanExporter,
  responses: CompletedRequests,
  onFailure: TracingOptions["onFailure"],
): SpanExporter {
  return {
    export(spans, done) {
      // A span ends before the response to its request is made.
      setImmediate(() =>
        exporter.export(
          spans.map((span) => publicPart(span, responses.get(span))),
          (result) => {
            // The error itself holds the collector's whole response.
            if (result.error !== undefined) onFailure(result.error.message);
            done(result);
          },
        ),
      );
    },
    shutdown: () => exporter.shutdown(),
  };
}

/**
 * The plugin's attributes that are exported. The others hold headers, the query, the response's body and messages of
 * errors: tokens and plants must not leave the process, and causes are for the log only.
 */
const ATTRIBUTES = new Set(["error.type", "exception.type", "url.scheme"]);

function publicPart(span: ReadableSpan, completed: CompletedRequest | undefined): ReadableSpan {
  const attributes = allowed(span.attributes);
  const events = span.events.map((event) => ({ ...event, attributes: allowed(event.attributes) }));
  const parts = completed
    ? { ...requestPart(completed), attributes: { ...attributes, ...attributesOf(completed) }, events }
    : { attributes, events, status: { code: isServerSpan(span) ? SpanStatusCode.UNSET : span.status.code } };
  // Without `tracestate`, a header that goes from the client to the collector as it is.
  const { traceId, spanId, traceFlags } = span.spanContext();
  const spanContext = () => ({ traceId, spanId, traceFlags });
  return Object.create(span, Object.getOwnPropertyDescriptors({ ...parts, spanContext })) as ReadableSpan;
}

/** A request's own span. Where it has no response its client went away, and whether it failed is not known yet. */
function isServerSpan({ kind }: ReadableSpan): boolean {
  return kind === SpanKind.SERVER;
}

function allowed(attributes: ReadableSpan["attributes"] = {}): ReadableSpan["attributes"] {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => ATTRIBUTES.has(name)));
}

/** https://opentelemetry.io/docs/specs/semconv/http/http-spans: a client's error is no error of the server. */
function requestPart({ method, path, status }: CompletedRequest): Pick<ReadableSpan, "name" | "status"> {
  return {
    name: path === "other" ? method : `${method} ${path}`,
    status: { code: status >= 500 ? SpanStatusCode.ERROR : SpanStatusCode.UNSET },
  };
}

function attributesOf({ method, path, status, requestId }: CompletedRequest): ReadableSpan["attributes"] {
  return {
    "http.request.method": method,
    "http.response.status_code": status,
    "plant_store.request_id": requestId,
    ...(path !== "other" && { "http.route": path }),
  };
}
