/**
 * The weights of what a client lists in a header such as Accept or Accept-Encoding (RFC 9110, section 12.4.2), by name
 * in small letters. Where no weight is given it is 1; other parameters do not matter here.
 *
 * @param header The header's value; `null` where there is none, which lists nothing.
 *
 * @example
 * ```ts
 * weightsOf("gzip, br;q=0.5").get("br"); // 0.5
 * ```
 */
function weightsOf(header: string | null): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const item of header?.split(",") ?? []) {
    const [name = "", ...parameters] = item.split(";").map((part) => part.trim().toLowerCase());
    if (name !== "") weights.set(name, weightIn(parameters));
  }
  return weights;
}

function weightIn(parameters: readonly string[]): number {
  const weight = parameters.find((parameter) => parameter.startsWith("q="));
  return weight === undefined ? 1 : Number(weight.slice("q=".length));
}

/** How much a client wants a media type: what is listed most precisely counts (RFC 9110, section 12.5.1). */
export function mediaTypeWeight(type: string, accept: string | null): number {
  const weights = weightsOf(accept);
  const range = `${type.slice(0, type.indexOf("/"))}/*`;
  return weights.get(type) ?? weights.get(range) ?? weights.get("*/*") ?? 0;
}

/** Whether a client takes gzip, and would not rather have what is not encoded (RFC 9110, section 12.5.3). */
export function prefersGzip(acceptEncoding: string | null): boolean {
  const weights = weightsOf(acceptEncoding);
  const gzip = weights.get("gzip") ?? weights.get("*") ?? 0;
  return gzip > 0 && gzip >= (weights.get("identity") ?? 0);
}
