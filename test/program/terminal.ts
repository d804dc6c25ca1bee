import { join } from "node:path";

import { post } from "../support/client.ts";
import { fern, jsonOf, TEXT } from "../support/plants.ts";
import { startServer } from "../support/program.ts";

/** The height of a line and the width of the picture, in pixels, for a phone. */
const LINE = 22;
const WIDTH = 560;
/** As many characters of 16 pixels as fit on a line. */
const COLUMNS = 53;

const PLANT = fern({ [TEXT]: "Monstera" });

const SESSION = [
  { plant: PLANT },
  { comment: "# the response got lost: send it again", plant: PLANT },
  { comment: "# a different plant", plant: fern() },
];

/** A first session as an SVG, from a real run. The token is shortened, and the port is the default. */
async function terminalPicture(): Promise<string> {
  await using server = await startServer({ env: { LOG_FORMAT: "pretty", NO_COLOR: "1" } });
  const [printed, token = ""] = await server.stderr.until(/[^]*?^  (plant_\w{38})$/m);
  const lines = [`$ plant-store`, ...printed.split("\n")];

  for (const { comment = "", plant } of SESSION) {
    const response = await post(server.url, plant, { token });
    lines.push(comment, `$ curl … -d '${jsonOf(plant)}'`);
    lines.push(`${await response.text()} ${response.status}`);
  }

  const text = lines
    .join("\n")
    .replaceAll(token, "plant_…")
    .replaceAll(server.cwd, "/srv")
    .replaceAll(server.url, "http://127.0.0.1:3000");

  // The server's output goes to a pipe here. On a terminal, the token does not expire.
  return draw(
    text
      .replace(/^[\d:.]+ (?:INF|WRN) /gm, "")
      .replace(/ version=\S+$/m, "")
      .replace(/^Configuration in force .*\n/m, "")
      .replace(/ It may be in a log .*/, ""),
  );
}

/** Draws lines of text in a dark window, which is easy to read on a light and on a dark page. */
function draw(text: string): string {
  const lines = text
    .split("\n")
    .flatMap((line) => wrap(line).map((part) => ({ part, color: colorOf(line) })));
  const height = lines.length * LINE + 56;

  const drawn = lines.map(({ part: line, color }, index) => {
    const at = `x="20" y="${56 + index * LINE}" fill="${color}" xml:space="preserve"`;
    return `<text ${at}>${Bun.escapeHTML(line)}</text>`;
  });

  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}"` +
      ` font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="16" role="img">`,
    `<title>The server starts, a plant is stored twice with 200, and a different plant under its id gets 409</title>`,
    `<rect x="0.5" y="0.5" width="${WIDTH - 1}" height="${height - 1}" rx="8" fill="#0d1117" stroke="#3d444d"/>`,
    ...["#ff5f57", "#febc2e", "#28c840"].map(
      (fill, index) => `<circle cx="${22 + index * 18}" cy="20" r="6" fill="${fill}"/>`,
    ),
    ...drawn,
    "</svg>\n",
  ].join("\n");
}

/** Breaks a line between words, where a terminal of this width would be full. */
function wrap(line: string): string[] {
  if (line.length <= COLUMNS) return [line];
  const space = line.lastIndexOf(" ", COLUMNS);
  const end = space > 0 ? space : COLUMNS;
  return [line.slice(0, end), ...wrap(line.slice(end).trimStart())];
}

function colorOf(line: string): string {
  if (line.startsWith("$")) return "#79c0ff";
  if (line.startsWith("#")) return "#9198a1";
  if (line.endsWith(" 200")) return "#56d364";
  return line.endsWith(" 409") ? "#ffa657" : "#e6edf3";
}

/** Where the picture of the README is; `bun test/program/terminal.ts` renews it. */
const TERMINAL_FILE = join(import.meta.dir, "terminal.svg");

if (import.meta.main) await Bun.write(TERMINAL_FILE, await terminalPicture());
