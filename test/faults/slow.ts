import { getBytes } from "../support/load.ts";

/** A client that asks for a large file, and reads nothing of it. */
export async function neverReading(url: string) {
  const { hostname, port } = new URL(url);
  const closed = Promise.withResolvers<void>();
  const end = () => closed.resolve();
  const socket = await Bun.connect({
    hostname,
    port: Number(port),
    socket: { data: () => {}, close: end, error: end, end },
  });
  socket.pause();
  socket.write(getBytes("/swagger/swagger-ui-bundle.js"));
  return { closed: closed.promise, close: (_how: "reset") => socket.terminate() };
}
