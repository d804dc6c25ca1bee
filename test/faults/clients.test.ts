import { expect, setDefaultTimeout, test } from "bun:test";
import { executable } from "../support/executable.ts";
import { INTACT, makeLedger } from "../support/ledger.ts";
import { connect, limited, neverReading, newPlants, postBytes, startLoad } from "../support/load.ts";
import { TEST_TIMEOUT_MS, startServer } from "../support/program.ts";
import { makeDisk } from "../support/shim.ts";
import { requireReady } from "./health.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

test("idle, slow and never-reading clients do not hurt the others", async () => {
  using disk = makeDisk({ shim: false });
  await using server = await startServer(disk.server());
  const { url } = server;
  const idle = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const slow = await Promise.all(Array.from({ length: 50 }, () => connect(url)));
  const notReading = await Promise.all(Array.from({ length: 10 }, () => neverReading(url)));
  const request = postBytes({ id: 0n, name: "incomplete" });
  let sent = 0;
  const timer = setInterval(() => {
    for (const connection of slow) connection.send(request[sent] ?? "");
    if (sent < request.length - 2) sent++;
  }, 5);
  const ledger = makeLedger();
  const next = limited(newPlants("slow clients"), 500);
  const { responses, unanswered, wrong } = await startLoad({ url, connections: 16, ledger, next }).end;
  clearInterval(timer);
  expect({ responses, unanswered, wrong }).toEqual({ responses: { "200": 500 }, unanswered: 0, wrong: 0 });
  for (const connection of [...idle, ...slow, ...notReading]) connection.close("reset");
  // No plant of an incomplete request is stored: the ledger knows of none.
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});

test("a process limited to 64 file descriptors recovers when 200 connections are gone", async () => {
  using disk = makeDisk({ shim: false });
  const program = ["sh", "-c", 'ulimit -n 64; exec "$0" "$@"', ...executable()];
  await using server = await startServer(disk.server({ program }));
  const connections = await Promise.all(Array.from({ length: 200 }, () => connect(server.url)));
  for (const connection of connections) connection.close("reset");
  const ledger = makeLedger();
  await requireReady(server.url, ledger, newPlants("file descriptors"));
  expect(ledger.judge(disk.database)).toEqual(INTACT);
});
