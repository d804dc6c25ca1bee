/**
 * Returns why a server's certificate was refused, in words; `undefined` for any other code.
 *
 * @param code A code of the TLS library.
 */
export function certificateFailure(code: string): string | undefined {
  return FAILURES.find(([codes]) => codes.test(code))?.[1];
}

/** The result of `certificateFailure()` for a certificate that no known CA has signed. */
export const NOT_TRUSTED = "its certificate is not trusted";

const FAILURES: readonly (readonly [codes: RegExp, words: string])[] = [
  [/^(?:DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/, NOT_TRUSTED],
  [/^ERR_TLS_CERT_ALTNAME_INVALID$/, "its certificate is for another host"],
  [/^CERT_HAS_EXPIRED$/, "its certificate, or one above it, has expired"],
  [
    /^CERT_NOT_YET_VALID$/,
    "its certificate, or one above it, is not valid yet: check the clocks of both machines",
  ],
];
