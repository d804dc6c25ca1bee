/**
 * Returns the part of a URL that messages and the log may have: neither the password before the
 * host, nor the query, which may have a key.
 *
 * @returns `undefined` if the text is not a URL.
 */
export function publicUrl(url: string | URL): string | undefined {
  const parsed = URL.parse(url);
  return parsed === null ? undefined : `${parsed.origin}${parsed.pathname}`;
}
