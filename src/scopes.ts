/** What a caller may be allowed to do: store plants, and read the metrics. */
export const SCOPES = ["write", "metrics"] as const;
/** One of {@linkcode SCOPES}. */
export type Scope = (typeof SCOPES)[number];
