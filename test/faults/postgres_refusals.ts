/** Of a lock that does not end, the wait for it or the whole time ends first. */
export const LATE = String.raw`(?:another transaction held a lock for too long \(55P03\)|it did not respond in time \(DEADLINE\))`;

/** What to do after a change whose outcome is unknown. */
export const LOOK = "; plant-store token list shows whether it was done";

/** What to do after a token was made, or was not. */
export const SECRET_NOT_SHOWN =
  "; a token of this name may exist now although its secret was not shown: remove it with plant-store token delete new";

/** Commands that read or change tokens: how each says that it could not in time. */
export const LATE_COMMANDS: readonly (readonly [args: string, action: string, advice: string])[] = [
  ["token list", "list the tokens", ""],
  ["token create new", 'create token "new"', SECRET_NOT_SHOWN],
  ["token revoke old", 'revoke token "old"', LOOK],
  ["token delete old", 'delete token "old"', LOOK],
  ["token prune", "prune the tokens", LOOK],
  ["serve --port 0", "read the tokens", ""],
];
