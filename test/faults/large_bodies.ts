import { expect } from "bun:test";

import { connect, verdictOf } from "../support/load.ts";
import { memoryOf } from "../support/proc.ts";
import { startServer } from "../support/program.ts";

const BODY = Buffer.alloc(200_000_000, " ");
const MEGABYTE = 2 ** 20;

/** How a body is framed. */
const FRAMINGS = {
  sent: [`Content-Length: ${BODY.length}\r\n\r\n`, BODY],
  chunked: [`Transfer-Encoding: chunked\r\n\r\n${BODY.length.toString(16)}\r\n`, BODY],
} as const;

/** Four bodies of 200 MB at once. */
export interface LargeBodies {
  /** The settings of the server. */
  readonly env: Record<string, string>;
  /** An empty one is not sent. */
  readonly token: string;
  readonly framing: keyof typeof FRAMINGS;
  /** The status and the number of the error. */
  readonly verdict: string;
}

/** Expects that a server refuses them, and that they take no memory. */
export async function expectNoGrowth(what: string, bodies: LargeBodies): Promise<void> {
  const { env, token, verdict } = bodies;
  const [framing, body] = FRAMINGS[bodies.framing];
  await using server = await startServer({ env });
  await server.stderr.until(/Integrity check passed/);

  const before = memoryOf(server.child.pid).now;
  const verdicts = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const connection = await connect(server.url);
      connection.send(
        "POST /plants HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
      );
      if (token !== "") connection.send(`Authorization: Bearer ${token}\r\n`);
      connection.send(framing);
      connection.send(body);

      const response = await connection.response();
      connection.close("reset");

      // The system may drop a response that arrives while the client still sends.
      return response === undefined ? verdict : verdictOf(response);
    }),
  );

  expect(verdicts).toEqual(Array(4).fill(verdict));
  expect((await fetch(`${server.url}/livez`)).status).toBe(200);

  const growth = Math.round((memoryOf(server.child.pid).most - before) / MEGABYTE);
  console.log(`large bodies, ${what}: ${growth} MB more at most`);
  // Of each refused body 16 MB are read and discarded. It depends on the garbage collector how much
  // of that is there at once.
  expect(growth).toBeLessThan(100);
}
