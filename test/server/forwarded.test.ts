import { expect, test } from "bun:test";

import { forwardedFor, type ForwardedHeader } from "../../src/server/forwarded.ts";

const FORWARDED_FOR: readonly (readonly [ForwardedHeader, string, string | undefined])[] = [
  ["X-Forwarded-For", "192.0.2.1", "192.0.2.1"],
  ["X-Forwarded-For", "198.51.100.7, 192.0.2.1", "192.0.2.1"],
  ["X-Forwarded-For", "203.0.113.5, 198.51.100.7, 192.0.2.1", "192.0.2.1"],
  ["X-Forwarded-For", "192.0.2.1:4711", "192.0.2.1"],
  ["X-Forwarded-For", "2001:db8::1", "2001:db8::1"],
  ["X-Forwarded-For", "[2001:db8::1]:4711", "2001:db8::1"],
  ["X-Forwarded-For", "0.0.0.255", "0.0.0.255"],
  ["X-Forwarded-For", "::ffff:192.0.2.1", "192.0.2.1"],
  ["X-Forwarded-For", "[::FFFF:192.0.2.1]:4711", "192.0.2.1"],
  ["X-Forwarded-For", "::ffff:192.0.2.256", undefined],
  ["X-Forwarded-For", "999.999.999.999", undefined],
  ["X-Forwarded-For", "1.2.3.256", undefined],
  ["X-Forwarded-For", "1::2::3", undefined],
  ["X-Forwarded-For", "[1:2]", undefined],
  ["X-Forwarded-For", ":::::", undefined],
  ["X-Forwarded-For", "192.0.2.1,", undefined],
  ["X-Forwarded-For", "<script>", undefined],
  ["X-Forwarded-For", "", undefined],
  ["Forwarded", "for=192.0.2.1", "192.0.2.1"],
  [
    "Forwarded",
    'for=198.51.100.7;proto=http, proto=https;For="[2001:db8::1]:4711";by=_proxy',
    "2001:db8::1",
  ],
  ["Forwarded", 'for="198.51.100.7, for=192.0.2.1', "192.0.2.1"],
  ["Forwarded", "for=999.999.999.999", undefined],
  ["Forwarded", 'for="[::ffff:192.0.2.1]"', "192.0.2.1"],
  ["Forwarded", "for=_hidden", "_hidden"],
  ["Forwarded", "for=unknown", "unknown"],
  ["Forwarded", "proto=https", undefined],
];

const LONG: typeof FORWARDED_FOR = [
  ["X-Forwarded-For", `${"1.1.1.1,".repeat(2_000)}192.0.2.1`, "192.0.2.1"],
  ["X-Forwarded-For", "1".repeat(15_000), undefined],
  ["X-Forwarded-For", ":".repeat(15_000), undefined],
  ["Forwarded", `${"for=1.1.1.1,".repeat(1_000)}for=192.0.2.1`, "192.0.2.1"],
];

test.each(FORWARDED_FOR)("forwardedFor() gives the last address in %s: %s", expectAddress);

test.each(LONG)("forwardedFor() reads a very long %s", expectAddress);

function expectAddress(header: ForwardedHeader, value: string, address: string | undefined): void {
  const other = { "X-Forwarded-For": "Forwarded", Forwarded: "X-Forwarded-For" }[header];
  const headers = new Headers({ [header]: value, [other]: "for=203.0.113.9" });
  expect(forwardedFor(headers, header)).toBe(address as string);
}
