/**
 * Returns why a server's certificate was refused, in words; `undefined` for any other code.
 *
 * @param code A code of the TLS library.
 * @param ifUntrusted What follows the words if no known CA has signed the certificate.
 */
export function certificateFailure(code: string, ifUntrusted: string): string | undefined {
  if (/^(?:DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code))
    return `its certificate is not trusted: ${ifUntrusted}`;
  return FAILURES.get(code);
}

const FAILURES: ReadonlyMap<string, string> = new Map([
  ["ERR_TLS_CERT_ALTNAME_INVALID", "its certificate is for another host"],
  ["CERT_HAS_EXPIRED", "its certificate, or one above it, has expired"],
  [
    "CERT_NOT_YET_VALID",
    "its certificate, or one above it, is not valid yet: check the clocks of both machines",
  ],
]);
