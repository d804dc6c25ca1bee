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

/** Drawn for a phone: a page of 390 pixels shows its text at 11. */
const WIDTH = 560;
const PADDING = 16;
/** For the figure beside the longest bar. */
const FIGURE = 56;
/** As many characters of the headline as fit on a line. */
const COLUMNS = 52;
const AT_END = ' text-anchor="end"';
const FONT =
  "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif";

/** What the lean programs leave out. */
const LEFT_OUT = "no exact ids, limits, deadlines, metrics or log";

/**
 * Draws horizontal bars of the CPU of a plant, in the order given, as an SVG. Beside each bar is its
 * ratio to the one that stands out. Below the lean ones that are shorter is what they leave out.
 */
export function chart(bars: readonly Bar[], { theme, headline, emphasized }: ChartOptions): string {
  const { text, quiet, accent, bar: plain, rule } = COLORS[theme];
  const most = Math.max(...bars.map(({ micros }) => micros));
  const ours = bars.find(({ name }) => name === emphasized)?.micros ?? most;
  const description = bars.map(({ name, micros }) => `${name}: ${micros.toFixed(1)}`).join("; ");
  const right = WIDTH - PADDING;
  const parts: string[] = [];
  let y = 34;

  function write(x: number, color: string, words: string, attributes = ""): void {
    parts.push(
      `<text x="${x.toFixed(1)}" y="${y}"${attributes} fill="${color}">${escapeXml(words)}</text>`,
    );
  }

  for (const line of wrap(headline)) {
    write(PADDING, text, line, ' font-size="18" font-weight="600"');
    y += 24;
  }

  write(PADDING, quiet, `CPU per plant, relative to ${emphasized}`);
  write(right, quiet, "plants a second", AT_END);
  y += 34;

  for (const { name, micros, perSecond } of bars) {
    const isOurs = name === emphasized;
    const bold = isOurs ? ' font-weight="600"' : "";
    const length = Math.max(2, (micros * (right - PADDING - FIGURE)) / most);

    write(PADDING, isOurs ? accent : text, name, bold);
    write(
      right,
      isOurs ? accent : quiet,
      Math.round(perSecond).toLocaleString("en-US"),
      AT_END + bold,
    );

    const fill = isOurs ? accent : plain;
    parts.push(
      `<rect x="${PADDING}" y="${y + 8}" width="${length.toFixed(1)}" height="22" rx="2" fill="${fill}"/>`,
    );

    y += 25;
    const ratio = (micros / ours).toFixed(micros < ours ? 2 : 1);
    write(PADDING + length + 8, isOurs ? accent : text, ratio, bold);
    y += 35;

    if (micros < ours && name.includes("lean")) {
      y -= 8;
      write(PADDING, quiet, LEFT_OUT);
      y += 32;
    }
  }

  write(PADDING, quiet, "64 connections, ascending ids, an fsync before every 200");

  const height = y + PADDING;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"` +
      ` font-family="${FONT}" font-size="16" role="img" aria-labelledby="title description">`,
    `<title id="title">${escapeXml(headline)}</title>`,
    `<desc id="description">${escapeXml(description)}</desc>`,
    `<rect x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8" fill="none" stroke="${rule}"/>`,
    ...parts,
    "</svg>\n",
  ].join("\n");
}

/** Breaks a line between words. */
function wrap(line: string): string[] {
  const space = line.lastIndexOf(" ", COLUMNS);
  if (line.length <= COLUMNS || space < 0) return [line];
  return [line.slice(0, space), ...wrap(line.slice(space + 1))];
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
