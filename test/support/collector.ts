/** A span as a collector has it. */
export interface Span {
  readonly name: string;
  /** In lower-case hex, as in a `traceparent`. */
  readonly traceId: string;
  readonly parentSpanId: string;
  /** 2 for a server's. */
  readonly kind: number;
  /** 0 for unset, 2 for an error. */
  readonly status: number;
  readonly attributes: Readonly<Record<string, string | number>>;
}

/** An OTLP receiver (https://opentelemetry.io/docs/specs/otlp/#otlphttp) on a free port, until the end of the scope. */
export function startCollector() {
  const spans: Span[] = [];
  const resources: Record<string, string | number>[] = [];
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

  /** The numbers are those of the fields in opentelemetry/proto/trace/v1/trace.proto. */
  function take(request: Message): void {
    for (const resourceSpans of messages(request, 1)) {
      for (const resource of messages(resourceSpans, 1)) resources.push(attributesOf(resource, 1));
      for (const scopeSpans of messages(resourceSpans, 2)) spans.push(...messages(scopeSpans, 2).map(toSpan));
    }
  }

  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    /** The attributes of what sent the spans, one for each export. */
    resources,
    /** Everything that came, byte for byte. */
    requests,
    /** Waits until so many spans came. */
    async until(count: number): Promise<void> {
      while (spans.length < count) await changed.promise;
    },
    [Symbol.dispose]: () => void server.stop(true),
  };
}

function toSpan(span: Message): Span {
  const [status] = messages(span, 15);
  return {
    name: text(span, 5),
    traceId: bytes(span, 1).toHex(),
    parentSpanId: bytes(span, 4).toHex(),
    kind: number(span, 6),
    status: status === undefined ? 0 : number(status, 3),
    attributes: attributesOf(span, 9),
  };
}

/** Each value is a message of one field: 1 for a string, 3 for an integer. */
function attributesOf(message: Message, field: number): Record<string, string | number> {
  const entries = messages(message, field).map((attribute) => {
    const [value = new Map() as Message] = messages(attribute, 2);
    return [text(attribute, 1), value.has(3) ? number(value, 3) : text(value, 1)] as const;
  });
  return Object.fromEntries(entries);
}

/** The values of each field of a protobuf message, by its number (https://protobuf.dev/programming-guides/encoding/). */
type Message = ReadonlyMap<number, readonly (number | Uint8Array)[]>;

function decode(bytes: Uint8Array): Message {
  const fields = new Map<number, (number | Uint8Array)[]>();
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++];
      if (byte === undefined) throw new Error("A number ends after the message");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  const valueOf = (wireType: number) => {
    if (wireType === 0) return varint();
    const length = wireType === 1 ? 8 : wireType === 5 ? 4 : varint();
    at += length;
    if (at > bytes.length) throw new Error(`Field of ${length} bytes ends after the message`);
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const tag = varint();
    fields.getOrInsertComputed(tag >>> 3, () => []).push(valueOf(tag & 7));
  }
  return fields;
}

function number(message: Message, field: number): number {
  return Number(message.get(field)?.at(-1) ?? 0);
}

function all(message: Message, field: number): Uint8Array[] {
  return (message.get(field) ?? []).filter((value) => value instanceof Uint8Array);
}

function bytes(message: Message, field: number): Uint8Array {
  return all(message, field).at(-1) ?? new Uint8Array();
}

function text(message: Message, field: number): string {
  return new TextDecoder().decode(bytes(message, field));
}

function messages(message: Message, field: number): Message[] {
  return all(message, field).map(decode);
}
