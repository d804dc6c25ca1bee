import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };

const ROOT = join(import.meta.dir, "../..");
const RULE = `\n\n${"-".repeat(80)}\n\n`;

/**
 * The license of Plant Store, and the licenses and notices of each package in its bundle and of
 * Bun. Bun evaluates it while it builds the program (https://bun.com/docs/bundler/macros).
 *
 * @throws {Error} If a package has no license.
 */
export async function licensesOfProgram(): Promise<string> {
  const introduction = "Plant Store contains these packages. The executable contains Bun, too.";
  return (
    [read("LICENSE"), introduction, ...(await licensesOfPackages()), licenseOfBun()].join(RULE) +
    "\n"
  );
}

/** Each text once, below the packages that it is for. */
async function licensesOfPackages(): Promise<string[]> {
  const titles = new Map<string, string[]>();
  for (const [directory, files] of await bundledFiles()) {
    const { name, version, license } = JSON.parse(read(`${directory}/package.json`));
    const texts = noticesOf(directory, files);

    // Drizzle only names its license. The text of this one is the same for all.
    if (texts.length === 0 && license === "Apache-2.0")
      texts.push(read("node_modules/swagger-ui-dist/LICENSE"));
    if (texts.length === 0) throw new Error(`Cannot find the license of ${name} in ${directory}`);

    for (const text of texts)
      titles.set(text, [...(titles.get(text) ?? []), `${name} ${version}, ${license}`]);
  }

  return Array.from(titles, ([text, packages]) => `${packages.join("\n")}\n\n${text}`);
}

/**
 * The licenses and notices of a package. Webpack puts those of what it bundled into a file beside
 * that file.
 */
function noticesOf(directory: string, files: readonly string[]): string[] {
  const ofBundles = files.map((file) => `${basename(file)}.LICENSE.txt`);
  return readdirSync(join(ROOT, directory))
    .filter((name) => /^(?:licen[cs]e|notice|copying)\b/i.test(name) || ofBundles.includes(name))
    .toSorted()
    .map((name) => read(`${directory}/${name}`));
}

/** The directory of each package in the bundle of the program, and the package's files there. */
async function bundledFiles(): Promise<[directory: string, files: string[]][]> {
  const { outputs } = await bundle();
  const paths = Object.values(outputs).flatMap(({ inputs }) => Object.keys(inputs));
  const files = [...new Set(paths)].filter((path) => path.includes("node_modules/")).toSorted();
  const directoryOf = (path: string) =>
    /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? path;
  return [...Map.groupBy(files, directoryOf)];
}

/** Bundles the program without this text. In a macro, Bun allows that only by its command line. */
async function bundle(): Promise<Bun.BuildMetafile> {
  const directory = mkdtempSync(join(tmpdir(), "plant-store-"));
  try {
    const entries = packageJson.scripts["build:program"].match(/src\/\S+\.ts/g) ?? [];
    const metafile = join(directory, "metafile.json");
    const flags = [
      "--target=bun",
      "--external=*/embedded_licenses.ts",
      `--outdir=${directory}`,
      `--metafile=${metafile}`,
    ];

    await Bun.$`${process.execPath} build ${entries} ${flags}`.cwd(ROOT).quiet();
    return await Bun.file(metafile).json();
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** Of Bun, and by name of what it links statically. */
function licenseOfBun(): string {
  const page = read("node_modules/bun-types/docs/project/license.mdx");
  return `Bun ${Bun.version}\n\n${page.replace(/^---.*?---\s*/s, "")}`;
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), "utf8").trim();
}
