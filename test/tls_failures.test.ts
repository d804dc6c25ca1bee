import { expect, test } from "bun:test";

import { certificateFailure } from "../src/tls_failures.ts";

test.each([
  ["DEPTH_ZERO_SELF_SIGNED_CERT", "its certificate is not trusted: set it"],
  ["SELF_SIGNED_CERT_IN_CHAIN", "its certificate is not trusted: set it"],
  ["UNABLE_TO_GET_ISSUER_CERT", "its certificate is not trusted: set it"],
  ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "its certificate is not trusted: set it"],
  ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", "its certificate is not trusted: set it"],
  ["ERR_TLS_CERT_ALTNAME_INVALID", "its certificate is for another host"],
  ["CERT_HAS_EXPIRED", "its certificate, or one above it, has expired"],
  [
    "CERT_NOT_YET_VALID",
    "its certificate, or one above it, is not valid yet: check the clocks of both machines",
  ],
  ["ECONNREFUSED", undefined],
])("certificateFailure() says in words what %s means", (code, words) => {
  expect(certificateFailure(code, "set it")).toBe(words as string);
});
