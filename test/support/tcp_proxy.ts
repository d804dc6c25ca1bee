import type { Socket, TCPSocketListener } from "bun";

/** What a proxy does with what passes through it. */
export type ProxyMode =
  /** Hands everything on. */
  | "forward"
  /** Hands nothing on and closes nothing: to both sides the other one is silent. */
  | "black hole"
  /** Hands on what the client sends; at the first reply it closes both connections instead of handing it on. */
  | "lose the reply"
  /** Does so once, and forwards from then on. */
  | "lose one reply"
  /** Hands on zeros in the place of the first reply, and forwards from then on. */
  | "damage one reply";

/** A TCP proxy on this machine, between a client and a server. */
export interface TcpProxy extends Disposable {
  readonly port: number;
  set(mode: ProxyMode): void;
  /** Sends new connections to another port. */
  redirect(port: number): void;
  /** How many replies were lost. */
  lost(): number;
  /** How many bytes of replies came. */
  replyBytes(): number;
  /** Resets every connection. */
  reset(): void;
  /** Hands nothing on of the connections that are open, as a firewall that has forgotten them. Later ones pass. */
  forget(): void;
}

interface Link {
  readonly client: Socket<unknown>;
  server: Socket<unknown> | undefined;
  /** What the client sent before the server was there. */
  early: Uint8Array[];
  isForgotten: boolean;
}

/** How a proxy behaves. */
export interface ProxyOptions {
  /** How long each reply is held back, in milliseconds: a commit that takes so much longer. @default {0} */
  readonly delayMs?: number;
}

/** Starts a proxy in front of a port. */
export function startProxy(target: number, { delayMs = 0 }: ProxyOptions = {}): TcpProxy {
  const links = new Set<Link>();
  let mode: ProxyMode = "forward";
  let lost = 0;
  let replyBytes = 0;
  let port = target;

  function cut(link: Link): void {
    links.delete(link);
    link.client.terminate();
    link.server?.terminate();
  }

  function reply(link: Link, chunk: Uint8Array): void {
    replyBytes += chunk.length;
    if (mode === "black hole" || link.isForgotten) return;
    if (mode === "damage one reply") {
      mode = "forward";
      return void link.client.write(new Uint8Array(chunk.length));
    }
    if (mode !== "forward") {
      if (mode === "lose one reply") mode = "forward";
      lost++;
      return cut(link);
    }
    const copy = Buffer.from(chunk);
    if (delayMs > 0) setTimeout(() => void link.client.write(copy), delayMs);
    else link.client.write(copy);
  }

  async function connectLink(link: Link): Promise<void> {
    try {
      link.server = await Bun.connect({
        hostname: "127.0.0.1",
        port,
        socket: {
          data: (_socket, chunk) => reply(link, chunk),
          close: () => cut(link),
          error: () => cut(link),
        },
      });
      for (const chunk of link.early.splice(0)) link.server.write(chunk);
    } catch {
      cut(link);
    }
  }

  const listener: TCPSocketListener<Link> = Bun.listen<Link>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open(client) {
        client.data = { client, server: undefined, early: [], isForgotten: false };
        links.add(client.data);
        void connectLink(client.data);
      },
      data({ data: link }, chunk) {
        if (mode === "black hole" || link.isForgotten) return;
        if (link.server === undefined) link.early.push(Buffer.from(chunk));
        else link.server.write(chunk);
      },
      // A client that goes away in a black hole is not noticed at the other end.
      close: ({ data: link }) => void (mode !== "black hole" && cut(link)),
      error: ({ data: link }) => cut(link),
    },
  });
  return {
    port: listener.port,
    set: (next) => void (mode = next),
    redirect: (next) => void (port = next),
    lost: () => lost,
    replyBytes: () => replyBytes,
    reset: () => links.forEach(cut),
    forget: () => links.forEach((link) => void (link.isForgotten = true)),
    [Symbol.dispose]() {
      links.forEach(cut);
      listener.stop(true);
    },
  };
}
