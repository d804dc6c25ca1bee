import { expect, test } from "bun:test";

import { publicUrl } from "../../../src/auth/jwt/public_url.ts";

test.each([
  ["https://id.example.org/keys?key=secret#rest", "https://id.example.org/keys"],
  ["https://user:password@id.example.org:8443/keys", "https://id.example.org:8443/keys"],
  ["keys", undefined],
])("publicUrl() has no secret of %s", (url, shown) => {
  expect(publicUrl(url)).toBe(shown as string);
});
