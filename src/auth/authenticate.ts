/** Why the bearer of a token may not call, or that it may. */
export type Verdict =
  | { readonly ok: true }
  | {
      readonly ok: false;
      /** For the log only: the client is told nothing of it. It holds nothing of the token. */
      readonly reason: string;
    };

/**
 * The port that judges tokens: whether the bearer of this one may call the service now. It gives a promise only where
 * it has to wait: one for every request would cost a stored plant more than the judgement. It throws nothing but a
 * `PlantStoreError` `queue_full`, when too many tokens wait to be judged.
 */
export type Authenticate = (token: string) => Verdict | Promise<Verdict>;

/** The verdict on a token that is accepted: always this object, so that accepting one allocates nothing. */
export const ACCEPTED: Verdict = Object.freeze({ ok: true });

/** The verdict on a token that is refused for this reason. */
export function refused(reason: string): Verdict {
  return { ok: false, reason };
}
