import { expect } from "bun:test";

/** Reads an error response, and checks what all of them promise. */
export async function readError(response: Response) {
  const { headers, status } = response;
  expect(headers.get("content-type")).toStartWith("application/json");
  expect(headers.get("x-content-type-options")).toBe("nosniff");
  expect(headers.get("cache-control")).toBe("no-store");
  expect(headers.get("retry-after")).toBe(status === 503 ? "1" : null);

  const body = (await response.json()) as { readonly error: number; readonly message: string };
  expect(body).toEqual({ error: expect.any(Number), message: expect.stringMatching(/^[^\n]+$/) });
  // The status times ten plus a digit, so every number is an integer and belongs to its status.
  expect(Math.floor(body.error / 10)).toBe(status);

  return { status, ...body };
}

/** Reads a plant's response: its status and its body. */
export async function readPlant(response: Response): Promise<{ status: number; body: unknown }> {
  expect(response.headers.get("content-type")).toStartWith("application/json");
  expect(response.headers.get("x-content-type-options")).toBe("nosniff");
  return { status: response.status, body: await response.json() };
}
