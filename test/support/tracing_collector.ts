/**
 * An OTLP receiver (https://opentelemetry.io/docs/specs/otlp/#otlphttp) on a free port, until the
 * end of the scope.
 *
 * @param reply The body of every response. @default empty
 */
export function startCollector(reply?: Uint8Array<ArrayBuffer>) {
  const spans: ReturnType<typeof toSpan>[] = [];
  const resources: ReturnType<typeof attributesOf>[] = [];
  const requests: { path: string; headers: Headers; text: string }[] = [];

  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const bytes = await request.bytes();
      const { pathname } = new URL(request.url);
      requests.push({
        path: pathname,
        headers: request.headers,
        text: new TextDecoder("latin1").decode(bytes),
      });

      // The numbers are those of the fields in opentelemetry/proto/trace/v1/trace.proto.
      for (const resourceSpans of pathname === "/v1/traces"
        ? decode(bytes).all(1).map(decode)
        : []) {
        for (const resource of resourceSpans.all(1))
          resources.push(attributesOf(decode(resource), 1));
        for (const scopeSpans of resourceSpans.all(2).map(decode))
          spans.push(...scopeSpans.all(2).map(toSpan));
      }

      return new Response(reply, { headers: { "content-type": "application/x-protobuf" } });
    },
  });

  return {
    url: `http://127.0.0.1:${server.port}`,
    spans,
    /** The attributes of what sent the spans, one for each export. */
    resources,
    /** Everything that came, byte for byte. */
    requests,
    /** Waits until so many spans came. */
    async until(count: number): Promise<void> {
      while (spans.length < count) await Bun.sleep(2);
    },

    [Symbol.dispose]: () => void server.stop(true),
  };
}

function toSpan(bytes: Uint8Array) {
  const span = decode(bytes);
  return {
    name: span.text(5),
    /** In lower-case hex, as in a `traceparent`. */
    traceId: span.bytes(1).toHex(),
    spanId: span.bytes(2).toHex(),
    parentSpanId: span.bytes(4).toHex(),
    /** 2 for a server's. */
    kind: span.number(6),
    /** 0 for unset, 2 for an error. */
    status: decode(span.bytes(15)).number(3),
    attributes: attributesOf(span, 9),
  };
}

/** Each value is a message of one field: 1 for a string, 3 for an integer, 4 for a double. */
function attributesOf(message: Message, field: number): Record<string, string | number> {
  const entries = message.all(field).map((bytes) => {
    const attribute = decode(bytes);
    const value = decode(attribute.bytes(2));
    return [attribute.text(1), valueOf(value)] as const;
  });
  return Object.fromEntries(entries);
}

function valueOf(value: Message): string | number {
  if (value.has(3)) return value.number(3);
  if (!value.has(4)) return value.text(1);

  const double = value.bytes(4);
  return new DataView(double.buffer, double.byteOffset).getFloat64(0, true);
}

type Message = ReturnType<typeof decode>;

/**
 * The fields of a protobuf message, by their numbers
 * (https://protobuf.dev/programming-guides/encoding/).
 */
function decode(message: Uint8Array) {
  const fields = new Map<number, (number | Uint8Array)[]>();
  let at = 0;

  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++];
      if (byte === undefined) throw new Error("A number ends after the message");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };

  const valueOf = (wireType: number) => {
    if (wireType === 0) return varint();
    const length = wireType === 1 ? 8 : wireType === 5 ? 4 : varint();
    at += length;
    if (at > message.length) throw new Error(`Field of ${length} bytes ends after the message`);
    return message.subarray(at - length, at);
  };

  while (at < message.length) {
    const tag = varint();
    fields.getOrInsertComputed(tag >>> 3, () => []).push(valueOf(tag & 7));
  }

  const all = (field: number) =>
    (fields.get(field) ?? []).filter((value) => value instanceof Uint8Array);
  const bytes = (field: number) => all(field).at(-1) ?? new Uint8Array();

  return {
    has: (field: number) => fields.has(field),
    number: (field: number) => Number(fields.get(field)?.at(-1) ?? 0),
    all,
    bytes,
    text: (field: number) => new TextDecoder().decode(bytes(field)),
  };
}
