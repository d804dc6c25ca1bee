import { createRequire } from "node:module";
import { join } from "node:path";
import { ROOT } from "./program.ts";

/** A span as a collector has it. */
export interface Span {
  readonly name: string;
  readonly kind: string;
  /** In lower-case hex, as in a `traceparent`. */
  readonly traceId: string;
  readonly parentSpanId: string;
  readonly status: string;
  readonly attributes: Readonly<Record<string, unknown>>;
}

interface Attribute {
  readonly key: string;
  readonly value: Readonly<Record<string, unknown>>;
}

interface TraceRequest {
  readonly resourceSpans?: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly {
        readonly name: string;
        readonly kind: string;
        readonly traceId: Uint8Array;
        readonly parentSpanId?: Uint8Array;
        readonly status: { readonly code: string };
        readonly attributes?: readonly Attribute[];
      }[];
    }[];
  }[];
}

// The exporter's own copy of OTLP's messages, compiled from their definitions: it comes with it, in the same version.
const messages = createRequire(import.meta.url)(
  join(ROOT, "node_modules/@opentelemetry/otlp-transformer/build/src/generated/root.js"),
);
const { ExportTraceServiceRequest } = messages.opentelemetry.proto.collector.trace.v1;

/** An OTLP receiver (https://opentelemetry.io/docs/specs/otlp/#otlphttp) on a free port, until the end of the scope. */
export function startCollector() {
  const spans: Span[] = [];
  const services = new Set<unknown>();
  const requests: { path: string; headers: Headers; text: string }[] = [];
  let changed = Promise.withResolvers<void>();
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const bytes = await request.bytes();
      const { pathname } = new URL(request.url);
      requests.push({ path: pathname, headers: request.headers, text: new TextDecoder("latin1").decode(bytes) });
      if (pathname === "/v1/traces") take(decode(bytes));
      changed.resolve();
      changed = Promise.withResolvers();
      return new Response();
    },
  });

  function take({ resourceSpans = [] }: TraceRequest): void {
    for (const { resource, scopeSpans } of resourceSpans) {
      services.add(record(resource.attributes)["service.name"]);
      for (const scope of scopeSpans) spans.push(...scope.spans.map(toSpan));
    }
  }

  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    services,
    /** Everything that came, byte for byte. */
    requests,
    /** Those of requests, not of the steps inside of them. */
    requestSpans: () => spans.filter(({ kind }) => kind === "SPAN_KIND_SERVER"),
    /** Waits until so many spans of requests came. */
    async until(count: number): Promise<void> {
      while (this.requestSpans().length < count) await changed.promise;
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
}

function decode(bytes: Uint8Array): TraceRequest {
  return ExportTraceServiceRequest.toObject(ExportTraceServiceRequest.decode(bytes), { enums: String, longs: Number });
}

type RawSpan = NonNullable<TraceRequest["resourceSpans"]>[number]["scopeSpans"][number]["spans"][number];

function toSpan({ name, kind, traceId, parentSpanId, status, attributes = [] }: RawSpan): Span {
  return {
    name,
    kind,
    traceId: traceId.toHex(),
    parentSpanId: parentSpanId?.toHex() ?? "",
    status: status.code,
    attributes: record(attributes),
  };
}

/** Each value is an object of one member, named by its type. */
function record(attributes: readonly Attribute[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
