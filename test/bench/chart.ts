/** One bar of the chart. */
export interface Bar {
  readonly name: string;
  /** CPU of a plant, in microseconds. */
  readonly micros: number;
  /** Plants a second. */
  readonly perSecond: number;
}

/** How the chart looks. */
export interface ChartOptions {
  readonly theme: "light" | "dark";
  /** What the bars show, as a sentence. */
  readonly headline: string;
  /** The name of the bar that stands out. */
  readonly emphasized: string;
}

/**
 * Every color has a contrast of at least 4.5 to the page of its theme (WCAG 2.2, 1.4.3), the plain
 * bars of 3.
 */
const COLORS = {
  light: { text: "#1f2328", quiet: "#59636e", accent: "#1a7f37", bar: "#8c959f", rule: "#d1d9e0" },
  dark: { text: "#f0f6fc", quiet: "#9198a1", accent: "#3fb950", bar: "#656c76", rule: "#3d444d" },
} as const;

const WIDTH = 860;
const HEAD = 74;
const ROW = 34;
/** For the figures beside the longest bar. */
const FIGURES = 170;
/** The widest that a character of a name is in any of the fonts, on average. */
const CHARACTER = 7.4;
const FONT =
  "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif";

/**
 * Draws horizontal bars of the CPU of a plant, in the order given, each with its figures beside it,
 * as an SVG.
 */
export function chart(bars: readonly Bar[], { theme, headline, emphasized }: ChartOptions): string {
  const { text, quiet, accent, bar: plain, rule } = COLORS[theme];
  const height = HEAD + bars.length * ROW + 34;
  const most = Math.max(...bars.map(({ micros }) => micros));
  const left = Math.ceil(Math.max(...bars.map(({ name }) => name.length)) * CHARACTER) + 24;
  const description = bars.map(({ name, micros }) => `${name}: ${micros.toFixed(1)}`).join("; ");
  const foot = "64 connections on one machine. Every 200 is sent after an fsync.";

  function row({ name, micros, perSecond }: Bar, index: number): string {
    const top = HEAD + index * ROW;
    const length = Math.max(2, (micros * (WIDTH - left - FIGURES)) / most);
    const [ink, faint, fill, weight] =
      name === emphasized
        ? [accent, accent, accent, ' font-weight="600"']
        : [text, quiet, plain, ""];
    const label = (x: number, anchor: "start" | "end", color: string, words: string) =>
      `<text x="${x.toFixed(1)}" y="${top + 19}" text-anchor="${anchor}" fill="${color}"${weight}>${escapeXml(words)}</text>`;
    return [
      label(left - 12, "end", ink, name),
      `<rect x="${left}" y="${top + 3}" width="${length.toFixed(1)}" height="22" rx="2" fill="${fill}"/>`,
      label(left + length + 8, "start", ink, micros.toFixed(0)),
      label(WIDTH, "end", faint, Math.round(perSecond).toLocaleString("en-US")),
    ].join("\n");
  }

  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"` +
      ` font-family="${FONT}" font-size="14" role="img" aria-labelledby="title description">`,
    `<title id="title">${escapeXml(headline)}</title>`,
    `<desc id="description">${escapeXml(description)}</desc>`,
    `<text x="0" y="22" font-size="18" font-weight="600" fill="${text}">${escapeXml(headline)}</text>`,
    `<text x="0" y="46" fill="${quiet}">server CPU for one stored plant, in microseconds; shorter is better</text>`,
    `<text x="${WIDTH}" y="46" text-anchor="end" fill="${quiet}">plants a second</text>`,
    `<line x1="${left}" y1="${HEAD - 8}" x2="${left}" y2="${HEAD + bars.length * ROW}" stroke="${rule}"/>`,
    ...bars.map(row),
    `<text x="0" y="${height - 8}" font-size="12" fill="${quiet}">${escapeXml(foot)}</text>`,
    "</svg>\n",
  ].join("\n");
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
