import { escapeControls } from "../errors.ts";

/** What was typed, or the name of a token, in quotation marks; a very long text is cut. */
export function quoted(typed: string): string {
  const text = escapeControls(typed);
  return text.length > 80 ? `"${text.slice(0, 80)}…"` : `"${text}"`;
}

/** A number for people: "400,000". */
export function grouped(count: number): string {
  return count.toLocaleString("en-US");
}

/** A number of things: "1 plant", "400,000 plants". */
export function counted(count: number, thing: string): string {
  return `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
}

/** The size of a file for people: "12 kB", "1,200 MB". */
export function formatBytes(bytes: number): string {
  return bytes < 1e6
    ? `${grouped(Math.ceil(bytes / 1e3))} kB`
    : `${grouped(Math.round(bytes / 1e6))} MB`;
}

/** How many names a message has: a database can have thousands of tokens. */
const MAX_NAMES = 20;

/** Names in quotation marks; of many, the first ones and the number of the others. */
export function namesOf(names: readonly string[]): string {
  const first = names.slice(0, MAX_NAMES).map(quoted).join(", ");
  const others = names.length - MAX_NAMES;
  return others > 0 ? `${first} and ${others} more` : first;
}
