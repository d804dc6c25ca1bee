import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** What a proxy does with what passes through it. */
export type ProxyMode =
  /** Hands everything on. */
  | "forward"
  /** Hands nothing on and closes nothing: each side finds the other silent. */
  | "black hole"
  /**
   * Hands on what the client sends; at the first reply it closes both connections instead of
   * handing it on.
   */
  | "lose the reply"
  /** Does so once, and forwards from then on. */
  | "lose one reply"
  /** Hands on zeros in the place of the first reply, and forwards from then on. */
  | "damage one reply";

/** A TCP proxy on this machine, between a client and a server. */
export type TcpProxy = ReturnType<typeof startProxy>;

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  isForgotten: boolean;
  /** Whether the client has sent what was not handed on. */
  hasSwallowed: boolean;
}

/**
 * Starts a proxy in front of a port.
 *
 * @param options.delayMs How long each reply is held back, in milliseconds: a commit that takes so
 *   much longer.
 */
export function startProxy(target: number, { delayMs = 0 } = {}) {
  const links = new Set<Link>();
  let mode: ProxyMode = "forward";
  let lost = 0;
  let replyBytes = 0;
  let connections = 0;
  let port = target;

  function cut(link: Link): void {
    links.delete(link);
    link.client.resetAndDestroy();
    link.server.resetAndDestroy();
  }

  function reply(link: Link, chunk: Buffer): void {
    replyBytes += chunk.length;
    if (mode === "black hole" || link.isForgotten) return;

    if (mode === "lose the reply" || mode === "lose one reply") {
      if (mode === "lose one reply") mode = "forward";
      lost++;
      return cut(link);
    }

    const isDamaged = mode === "damage one reply";
    if (isDamaged) mode = "forward";
    const bytes = isDamaged ? Buffer.alloc(chunk.length) : Buffer.from(chunk);
    if (delayMs > 0) setTimeout(() => void link.client.write(bytes), delayMs);
    else link.client.write(bytes);
  }

  const listener = createServer((client) => {
    const link = {
      client,
      server: connect(port, "127.0.0.1"),
      isForgotten: false,
      hasSwallowed: false,
    };
    links.add(link);
    connections++;
    client.on("data", (chunk) => {
      if (mode === "black hole" || link.isForgotten) link.hasSwallowed = true;
      else link.server.write(chunk);
    });

    // A client that goes away in a black hole is not noticed at the other end.
    client.on("close", () => void (mode !== "black hole" && cut(link)));
    link.server.on("data", (chunk) => reply(link, Buffer.from(chunk)));
    link.server.on("close", () => cut(link));
    for (const socket of [client, link.server]) socket.on("error", () => cut(link));
  });

  listener.listen(0, "127.0.0.1");

  return {
    port: (listener.address() as AddressInfo).port,
    set: (next: ProxyMode) => void (mode = next),
    /** Sends new connections to another port. */
    redirect: (next: number) => void (port = next),
    /** How many connections were made. */
    connections: () => connections,
    /** How many replies were lost. */
    lost: () => lost,
    /** How many clients wait for a reply to what was not handed on. */
    unanswered: () =>
      [...links].filter(({ client, hasSwallowed }) => hasSwallowed && !client.destroyed).length,
    /** How many bytes of replies came. */
    replyBytes: () => replyBytes,
    /**
     * Hands nothing on of the connections that are open, as a firewall that has forgotten them.
     * Later ones pass.
     */
    forget: () => links.forEach((link) => void (link.isForgotten = true)),
    [Symbol.dispose]() {
      links.forEach(cut);
      listener.close();
    },
  };
}
