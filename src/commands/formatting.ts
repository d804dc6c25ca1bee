import { escapeControls } from "../errors.ts";

/** Quotes a typed text or the name of a token, and cuts a very long one. */
export function quoted(typed: string): string {
  const text = escapeControls(typed);
  return text.length > 80 ? `"${text.slice(0, 80)}…"` : `"${text}"`;
}

/** Formats a number for people: "400,000". */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

/** Formats a number of things: "1 plant", "400,000 plants". */
export function counted(count: number, thing: string): string {
  return `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
}

/** Formats the size of a file for people: "12 kB", "1,200 MB". */
export function formatBytes(bytes: number): string {
  return bytes < 1e6
    ? `${grouped(Math.ceil(bytes / 1e3))} kB`
    : `${grouped(Math.round(bytes / 1e6))} MB`;
}

/** The maximum number of names in a message: a database can have thousands of tokens. */
const MAX_NAMES = 20;

/** Quotes names; of many, the first ones, followed by the number of the others. */
export function namesOf(names: readonly string[]): string {
  const first = names.slice(0, MAX_NAMES).map(quoted).join(", ");
  const others = names.length - MAX_NAMES;
  return others > 0 ? `${first} and ${others} more` : first;
}
