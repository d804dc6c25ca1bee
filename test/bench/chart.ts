/** One bar of the chart. */
export interface Bar {
  readonly name: string;
  /** CPU of a plant, in microseconds. */
  readonly micros: number;
  /** Plants a second. */
  readonly perSecond: number;
  /** Whether it stores at all. */
  readonly stores: boolean;
}

/** How the chart looks. */
export interface ChartOptions {
  readonly theme: "light" | "dark";
  /** The name of the bar that stands out. */
  readonly emphasized: string;
}

/** Every color has a contrast of at least 4.5 to the page of its theme (WCAG 2.2, 1.4.3), the plain bars of 3. */
const COLORS = {
  light: { text: "#1f2328", quiet: "#59636e", accent: "#1a7f37", bar: "#8c959f", rule: "#d1d9e0" },
  dark: { text: "#f0f6fc", quiet: "#9198a1", accent: "#3fb950", bar: "#656c76", rule: "#3d444d" },
} as const;

const WIDTH = 860;
const HEAD = 74;
const ROW = 34;
const NAMES = 232;
const FIGURES = 210;
const FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif";

/** Draws horizontal bars of the CPU of a plant, in the order given, each with its figures beside it, as an SVG. */
export function chart(bars: readonly Bar[], { theme, emphasized }: ChartOptions): string {
  const { text, quiet, rule } = COLORS[theme];
  const height = HEAD + bars.length * ROW + 34;
  const most = Math.max(...bars.map(({ micros }) => micros));
  const scale = (WIDTH - NAMES - FIGURES) / most;
  const title = "Server CPU for one stored plant, in microseconds: shorter is better";
  const description = bars.map(({ name, micros }) => `${name}: ${micros.toFixed(1)}`).join("; ");
  const foot = "64 connections, one machine. * Stores nothing: the least that a Bun.serve program can cost.";
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"` +
      ` font-family="${FONT}" font-size="14" role="img" aria-labelledby="title description">`,
    `<title id="title">${escapeXml(title)}</title>`,
    `<desc id="description">${escapeXml(description)}</desc>`,
    `<text x="0" y="22" font-size="18" font-weight="600" fill="${text}">Server CPU for one stored plant</text>`,
    `<text x="0" y="46" fill="${quiet}">microseconds, shorter is better · every 200 is sent after an fsync</text>`,
    `<text x="${WIDTH}" y="46" text-anchor="end" fill="${quiet}">plants a second</text>`,
    `<line x1="${NAMES}" y1="${HEAD - 8}" x2="${NAMES}" y2="${HEAD + bars.length * ROW}" stroke="${rule}"/>`,
    ...bars.map((bar, index) => drawBar(bar, HEAD + index * ROW, scale, COLORS[theme], bar.name === emphasized)),
    `<text x="0" y="${height - 8}" font-size="12" fill="${quiet}">${escapeXml(foot)}</text>`,
    "</svg>\n",
  ].join("\n");
}

function drawBar(
  { name, micros, perSecond, stores }: Bar,
  top: number,
  scale: number,
  { text, quiet, accent, bar }: (typeof COLORS)["light" | "dark"],
  isEmphasized: boolean,
): string {
  const baseline = top + 19;
  const length = Math.max(2, micros * scale);
  const weight = isEmphasized ? ' font-weight="600"' : "";
  const ink = isEmphasized ? accent : text;
  const end = NAMES + length + 8;
  const rate = Math.round(perSecond).toLocaleString("en-US");
  return [
    `<text x="${NAMES - 12}" y="${baseline}" text-anchor="end" fill="${ink}"${weight}>${escapeXml(name)}${stores ? "" : " *"}</text>`,
    `<rect x="${NAMES}" y="${top + 3}" width="${length.toFixed(1)}" height="22" rx="2" fill="${isEmphasized ? accent : bar}"/>`,
    `<text x="${end.toFixed(1)}" y="${baseline}" fill="${ink}"${weight}>${micros.toFixed(0)}</text>`,
    `<text x="${WIDTH}" y="${baseline}" text-anchor="end" fill="${isEmphasized ? accent : quiet}"${weight}>${rate}</text>`,
  ].join("\n");
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
