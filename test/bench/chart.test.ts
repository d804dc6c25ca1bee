import { expect, test } from "bun:test";

import { type Bar, chart } from "./chart.ts";

const BARS: readonly Bar[] = [
  { name: "Bun.serve, nothing stored", micros: 14.5, perSecond: 41_065 },
  { name: "plant-store", micros: 31.7, perSecond: 24_787 },
  { name: "Fastify & better-sqlite3, Node 20", micros: 192.8, perSecond: 4_250 },
];

const PAGES = { light: "#ffffff", dark: "#0d1117" } as const;

for (const theme of ["light", "dark"] as const) {
  const svg = chart(BARS, { theme, headline: "Half & half", emphasized: "plant-store" });

  test(`chart() labels every bar with its figures, on a ${theme} page`, () => {
    for (const text of ["Bun.serve, nothing stored", "41,065", "plant-store", "24,787", "6.1"]) {
      expect(svg).toContain(`>${text}</text>`);
    }
    expect(svg).toContain("Fastify &amp; better-sqlite3, Node 20");
    expect(svg).toContain("plant-store: 31.7; ");
    expect(svg).toContain(">Half &amp; half</text>");
  });

  test(`chart() says what a cheaper program leaves out, on a ${theme} page`, () => {
    const options = { theme, headline: "", emphasized: "plant-store" } as const;
    const lean = { name: "lean, on Elysia", micros: 20, perSecond: 50_000 };
    expect(chart([lean, ...BARS], options)).toContain(">no exact ids, ");
    expect(chart([{ ...lean, micros: 40 }, ...BARS], options)).not.toContain(">no exact ids, ");
    expect(svg).not.toContain(">no exact ids, ");
  });

  test(`chart() draws lengths in proportion and inside the picture, on a ${theme} page`, () => {
    const [ceiling = 0, ours = 0, slowest = 0] = numbers(
      svg,
      /<rect [^>]*width="([\d.]+)" height="22"/g,
    );
    expect(ours / ceiling).toBeCloseTo(31.7 / 14.5, 1);
    expect(slowest / ours).toBeCloseTo(192.8 / 31.7, 1);
    const figures = numbers(svg, /<text x="([\d.]+)" y="\d+"[^>]*>\d+\.\d+</g);
    expect(figures).toHaveLength(3);
    // A figure of four characters ends inside the frame.
    expect(Math.max(...figures) + 36).toBeLessThan(560 - 8);
  });

  test(`chart() can be read on a ${theme} page: text at 4.5 to 1, bars at 3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11)`, () => {
    const contrasts = (pattern: RegExp) =>
      Array.from(svg.matchAll(pattern), ([, color = ""]) => contrast(color, PAGES[theme]));
    expect(Math.min(...contrasts(/<text [^>]*fill="(#\w+)"/g))).toBeGreaterThan(4.5);
    expect(Math.min(...contrasts(/<rect [^>]*fill="(#\w+)"/g))).toBeGreaterThan(3);
  });
}

function numbers(text: string, pattern: RegExp): number[] {
  return Array.from(text.matchAll(pattern), ([, digits]) => Number(digits));
}

function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** WCAG 2.2, "relative luminance". */
function luminance(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5]
    .map((at) => Number.parseInt(color.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
