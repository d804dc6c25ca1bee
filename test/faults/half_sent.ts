import { expect } from "bun:test";
import { connect, type Connection, postBytes } from "../support/load.ts";
import { get } from "./health.ts";

/** A connection whose request ends in the middle of its body, and a server that has read what there is of it. */
export async function sendHalf(url: string): Promise<Connection> {
  const connection = await connect(url);
  connection.send(postBytes({ id: 2n, name: "Moss" }).slice(0, -5));
  expect(await get(url, "/livez")).toBe("200");
  return connection;
}
