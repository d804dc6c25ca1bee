import { expect } from "bun:test";

/** An error answer as a client reads it. */
export interface ReadError {
  readonly status: number;
  readonly error: number;
  readonly message: string;
}

/** Reads an error answer, and holds it to what every one of them promises. */
export async function readError(answer: Response): Promise<ReadError> {
  const { headers, status } = answer;
  expect(headers.get("content-type")).toStartWith("application/json");
  expect(headers.get("x-content-type-options")).toBe("nosniff");
  expect(headers.get("cache-control")).toBe("no-store");
  const body = (await answer.json()) as Omit<ReadError, "status">;
  expect(body).toEqual({ error: expect.any(Number), message: expect.stringMatching(/^[^\n]+$/) });
  // The status times ten plus a digit, so every number is an integer and belongs to its status.
  expect(Math.floor(body.error / 10)).toBe(status);
  return { status, ...body };
}

/** Reads a plant's answer: its status and its body. */
export async function readPlant(answer: Response): Promise<{ status: number; body: unknown }> {
  expect(answer.headers.get("content-type")).toStartWith("application/json");
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
  return { status: answer.status, body: await answer.json() };
}
