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
      if (pathname === "/v1/traces") take(new Message(bytes));
      changed.resolve();
      changed = Promise.withResolvers();
      return new Response();
    },
  });

  /** The numbers are those of the fields in opentelemetry/proto/trace/v1/trace.proto. */
  function take(request: Message): void {
    for (const resourceSpans of request.messages(1)) {
      for (const resource of resourceSpans.messages(1)) resources.push(attributesOf(resource, 1));
      for (const scopeSpans of resourceSpans.messages(2)) spans.push(...scopeSpans.messages(2).map(toSpan));
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
  return {
    name: span.text(5),
    traceId: span.bytes(1).toHex(),
    parentSpanId: span.bytes(4).toHex(),
    kind: span.number(6),
    status: span.messages(15)[0]?.number(3) ?? 0,
    attributes: attributesOf(span, 9),
  };
}

/** Each value is a message of one field: 1 for a string, 3 for an integer. */
function attributesOf(message: Message, field: number): Record<string, string | number> {
  const entries = message.messages(field).map((attribute) => {
    const [value = new Message(new Uint8Array())] = attribute.messages(2);
    return [attribute.text(1), value.has(3) ? value.number(3) : value.text(1)] as const;
  });
  return Object.fromEntries(entries);
}

/** A protobuf message (https://protobuf.dev/programming-guides/encoding/). */
class Message {
  readonly #bytes: Uint8Array;
  #at = 0;
  readonly #fields = new Map<number, (number | Uint8Array)[]>();

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    while (this.#at < bytes.length) {
      const tag = this.#varint();
      const values = this.#fields.getOrInsertComputed(tag >>> 3, () => []);
      values.push(this.#value(tag & 7));
    }
  }

  has(field: number): boolean {
    return this.#fields.has(field);
  }

  number(field: number): number {
    return Number(this.#fields.get(field)?.at(-1) ?? 0);
  }

  bytes(field: number): Uint8Array {
    return this.#all(field).at(-1) ?? new Uint8Array();
  }

  text(field: number): string {
    return new TextDecoder().decode(this.bytes(field));
  }

  messages(field: number): Message[] {
    return this.#all(field).map((bytes) => new Message(bytes));
  }

  #all(field: number): Uint8Array[] {
    return (this.#fields.get(field) ?? []).filter((value) => value instanceof Uint8Array);
  }

  #value(wireType: number): number | Uint8Array {
    if (wireType === 0) return this.#varint();
    const length = wireType === 1 ? 8 : wireType === 5 ? 4 : this.#varint();
    this.#at += length;
    if (this.#at > this.#bytes.length) throw new Error(`Field of ${length} bytes ends after the message`);
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  #varint(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw new Error("A number ends after the message");
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  }
}
