import { getCurrentSpan, opentelemetry } from "@elysiajs/opentelemetry";
import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from "@opentelemetry/sdk-trace-base";
import { withDeadline } from "../deadline.ts";
import type { CompletedRequest } from "../observer.ts";

/** Where traces go, and under what name. */
export interface TracingOptions {
  /** The collector's address, without the path of traces. */
  readonly endpoint: URL;
  readonly serviceName: string;
  /** Told why the collector did not take some spans. They are lost. */
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
      await withDeadline(sent, timeoutMs, () => onFailure("the collector was too slow for the last ones"));
    },
  };
}

/** What a request's span was answered. The plugin does not know: it takes a 409 for a 500, and a 404 for a 200. */
type CompletedRequests = WeakMap<object, CompletedRequest>;

function withoutSecrets(
  exporter: SpanExporter,
  responses: CompletedRequests,
  onFailure: TracingOptions["onFailure"],
): SpanExporter {
  return {
    export(spans, done) {
      // A span ends before its request is answered.
      setImmediate(() =>
        exporter.export(
          spans.map((span) => publicPart(span, responses.get(span))),
          (result) => {
            // The error itself has the whole of what the collector answered.
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
 * What of the plugin's attributes may leave. It notes every header, the query and what is answered, and an error's
 * message: tokens and plants are nobody's business, and causes are for the log.
 */
const ATTRIBUTES = new Set(["error.type", "exception.type", "url.scheme"]);

function publicPart(span: ReadableSpan, completed: CompletedRequest | undefined): ReadableSpan {
  const attributes = allowed(span.attributes);
  const events = span.events.map((event) => ({ ...event, attributes: allowed(event.attributes) }));
  const parts = completed
    ? { ...requestPart(completed), attributes: { ...attributes, ...attributesOf(completed) }, events }
    : { attributes, events, status: { code: givenUp(span) ? SpanStatusCode.UNSET : span.status.code } };
  // Without `tracestate`, a header that goes from the client to the collector as it is.
  const { traceId, spanId, traceFlags } = span.spanContext();
  const spanContext = () => ({ traceId, spanId, traceFlags });
  return Object.create(span, Object.getOwnPropertyDescriptors({ ...parts, spanContext })) as ReadableSpan;
}

/** A request's span that ended before a response: its client went away, and whether it failed is not known yet. */
function givenUp({ kind }: ReadableSpan): boolean {
  return kind === SpanKind.SERVER;
}

function allowed(attributes: ReadableSpan["attributes"] = {}): ReadableSpan["attributes"] {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => ATTRIBUTES.has(name)));
}

/** https://opentelemetry.io/docs/specs/semconv/http/http-spans: what a client did wrong is no error of the server. */
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
