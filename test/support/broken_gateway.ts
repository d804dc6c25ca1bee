import { type AddressInfo, connect, createServer } from "node:net";

const PAGE = "<html><body>502 Bad Gateway</body></html>";

/** What a gateway sends while it has no server, byte for byte. */
const RESPONSES: readonly string[] = [
  `HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: ${PAGE.length}\r\n\r\n${PAGE}`,
  // RFC 9110 section 10.2.3 allows a date.
  `HTTP/1.1 503 Service Unavailable\r\nRetry-After: ${new Date(0).toUTCString()}\r\nContent-Length: 0\r\n\r\n`,
  "HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
];

/**
 * Starts a gateway in front of a server. It answers the first connections itself, cuts the response
 * on the next one, and forwards from then on.
 */
export function startBrokenGateway(url: string) {
  const { hostname, port } = new URL(url);
  let connections = 0;

  const listener = createServer((client) => {
    const response = RESPONSES[connections];
    const isCut = connections++ === RESPONSES.length;
    client.on("error", () => client.destroy());
    if (response !== undefined) return client.once("data", () => client.end(response));

    const server = connect(Number(port), hostname);
    server.on("error", () => client.destroy());
    client.pipe(server);
    if (!isCut) return server.pipe(client);

    return server.once("data", (chunk) => {
      client.end(Buffer.from(chunk).subarray(0, -4));
      server.destroy();
    });
  });

  listener.listen(0, "127.0.0.1");

  return {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    [Symbol.dispose]: () => void listener.close(),
  };
}
