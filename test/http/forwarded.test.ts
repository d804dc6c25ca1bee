import { expect, test } from "bun:test";
import { forwardedFor } from "../../src/http/forwarded.ts";

const cases: [Record<string, string>, string | undefined][] = [
  [{}, undefined],
  [{ "x-forwarded-for": "192.0.2.1" }, "192.0.2.1"],
  [{ "x-forwarded-for": "198.51.100.7, 192.0.2.1" }, "192.0.2.1"],
  [{ "x-forwarded-for": "192.0.2.1:4711" }, "192.0.2.1"],
  [{ "x-forwarded-for": "2001:db8::1" }, "2001:db8::1"],
  [{ "x-forwarded-for": "[2001:db8::1]:4711" }, "2001:db8::1"],
  [{ "x-forwarded-for": "192.0.2.1," }, undefined],
  [{ "x-forwarded-for": "<script>" }, undefined],
  [{ "x-forwarded-for": "x".repeat(10_000) }, undefined],
  [{ forwarded: "for=192.0.2.1" }, "192.0.2.1"],
  [{ forwarded: 'for=198.51.100.7;proto=http, proto=https;For="[2001:db8::1]:4711";by=_proxy' }, "2001:db8::1"],
  [{ forwarded: 'for="198.51.100.7, for=192.0.2.1' }, "192.0.2.1"],
  [{ forwarded: "for=_hidden" }, "_hidden"],
  [{ forwarded: "for=unknown" }, "unknown"],
  [{ forwarded: "proto=https" }, undefined],
  [{ forwarded: "for=198.51.100.7", "x-forwarded-for": "192.0.2.1" }, "192.0.2.1"],
];

test.each(cases)("forwardedFor() takes the last address of %p", (headers, address) => {
  expect(forwardedFor(new Headers(headers))).toBe(address as string);
});
