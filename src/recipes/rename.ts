import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const USAGE = `Usage: bun src/recipes/rename.ts NOUN PLURAL /PATH

Renames the record of this project: meter meters /meter-events. Run it in the root of a clone.
NOUN and PLURAL are one word each, in lower case. PATH has one word, or several with hyphens.`;

/** The new names of the record. */
interface Names {
  readonly noun: string;
  readonly plural: string;
  readonly path: string;
}

/** The patches of this folder, in the order of the page, each with those that it builds on. */
const PATCHES: Readonly<Record<string, readonly string[]>> = {
  "read.patch": [],
  "list.patch": ["read.patch"],
  "limit.patch": [],
  "field.patch": [],
};

const FOLDER = "src/recipes";

/** What is of use to plants only: this program, its tests, and databases of plants. */
const DROPPED = /^src\/recipes\/rename\.ts$|^test\/recipes\/|^test\/database\/fixtures\/.*-\d/;

/** Renames the record of the clone, and of its patches, and checks the types. Returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  const names = namesFrom(args);
  if (names === undefined) {
    console.error(USAGE);
    return 2;
  }
  const { exitCode } = await Bun.$`git diff --quiet`.nothrow().quiet();
  if (exitCode !== 0) {
    console.error("The clone has changes that are not staged: commit them first.");
    return 1;
  }

  const clashes = await clashesWith(names);
  const patches = await renamedPatches(names);
  await renameTree(process.cwd(), names);
  for (const [file, patch] of Object.entries(patches)) await Bun.write(join(FOLDER, file), patch);

  for (const [name, [file, ...others]] of clashes) {
    const more = others.length === 0 ? "" : ` and ${others.length} more`;
    console.log(`"${name}" is already in ${file}${more}: does it mean two things now?`);
  }
  const check = await Bun.$`bun run check`.nothrow();
  return check.exitCode;
}

function namesFrom([noun = "", plural = "", path = "", ...rest]: readonly string[]):
  Names | undefined {
  const isWord = (word: string) => /^[a-z]{2,}$/.test(word);
  const isPath = /^\/[a-z\d]+(?:-[a-z\d]+)*$/.test(path);
  return isWord(noun) && isWord(plural) && noun !== plural && isPath && rest.length === 0
    ? { noun, plural, path }
    : undefined;
}

/** The files of a work tree that Git knows, from its root. */
async function filesOf(root: string): Promise<string[]> {
  const listed = await Bun.$`git ls-files -z`.cwd(root).text();
  return listed.split("\0").filter((file) => file !== "" && existsSync(join(root, file)));
}

/** The words that the renaming makes and the code already has, each with the files that have both. */
async function clashesWith(names: Names): Promise<Map<string, string[]>> {
  const clashes = new Map<string, string[]>();
  for (const file of await filesOf(process.cwd())) {
    if (!file.endsWith(".ts") || DROPPED.test(file)) continue;
    // A member such as `.entries` does not clash.
    const words = new Set((await Bun.file(file).text()).match(/(?<![.\w$])[\w$]+/g));
    for (const word of words) {
      const name = renamed(word, names);
      if (name !== word && words.has(name)) clashes.getOrInsertComputed(name, () => []).push(file);
    }
  }
  return clashes;
}

/**
 * The patches for the renamed code. Lines have other lengths there, and imports another order: so each
 * is made of two trees that were renamed and formatted.
 */
async function renamedPatches(names: Names): Promise<Record<string, string>> {
  const work = mkdtempSync(join(tmpdir(), "rename-"));
  try {
    await Bun.$`git init --quiet ${work}`;
    const treeWith = async (files: readonly string[]) => {
      for (const name of readdirSync(work))
        if (name !== ".git") rmSync(join(work, name), { recursive: true });
      await Bun.$`git checkout-index --all --prefix=${`${work}/`}`;
      for (const file of files)
        await Bun.$`git apply --ignore-whitespace ${join(FOLDER, file)}`.cwd(work);
      await Bun.$`git add --all`.cwd(work);
      await renameTree(work, names);
      await Bun.$`git add --all`.cwd(work);
      return (await Bun.$`git write-tree`.cwd(work).text()).trim();
    };

    // Three patches begin with the same tree, and one with the tree that another makes.
    const trees: Record<string, string> = {};
    const treeOf = async (files: readonly string[]) =>
      (trees[files.join()] ??= await treeWith(files));

    const made: Record<string, string> = {};
    for (const [file, below] of Object.entries(PATCHES)) {
      const [before, after] = [await treeOf(below), await treeOf([...below, file])];
      made[file] = await Bun.$`git diff --unified=1 --no-renames ${before} ${after}`
        .cwd(work)
        .text();
    }
    return made;
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** Renames what the files of a work tree contain, and the files, and formats them. */
async function renameTree(root: string, names: Names): Promise<void> {
  for (const file of await filesOf(root)) {
    const path = join(root, file);
    if (DROPPED.test(file)) {
      rmSync(path);
      continue;
    }
    if (file === "LICENSE" || file.endsWith(".patch")) continue;

    const bytes = await Bun.file(path).bytes();
    if (bytes.includes(0)) continue;
    const text = new TextDecoder().decode(bytes);
    const kept = text.replace(/ \.\/test\/recipes\/\*\.long\.ts|\n *"test\/recipes\/.*/g, "");
    const after = withPath(renamed(kept, names), names);
    const to = join(root, renamed(file, names));
    if (after !== text) await Bun.write(path, after);
    if (to !== path) {
      cpSync(path, to);
      rmSync(path);
    }
  }
  await Bun.$`bun run fmt`.cwd(root).quiet();
}

/** A text with the new names, in any case, and with the article that they need. */
function renamed(text: string, { noun, plural }: Names): string {
  const article = /^(?:[aeio]|u(?!ni|s|ti))/.test(noun) ? "n" : "";
  return (
    text
      // Also in a link to a heading: `#delete-a-plant`.
      .replace(/\ba(?=(?:[\s*`"']|\/\/)+plant|(?<=-a)-plants?\b)/gi, (a) => `${a}${article}`)
      // `PlantStore` has no plural.
      .replace(/plants?|Plants?|PLANTS?/g, (found) =>
        inCaseOf(found, /s$/i.test(found) ? plural : noun),
      )
      // Each database has "plnt", in ASCII: so neither program opens one of the other.
      .replaceAll("plnt", noun.slice(0, 4))
      .replaceAll("0x706c6e74", `0x${Buffer.from(noun.slice(0, 4)).toString("hex")}`)
  );
}

function inCaseOf(found: string, word: string): string {
  if (found === found.toUpperCase()) return word.toUpperCase();
  const initial = found.charAt(0);
  return initial === initial.toUpperCase() ? word.charAt(0).toUpperCase() + word.slice(1) : word;
}

/** A renamed text with the path of the operation, which is not always the plural. */
function withPath(text: string, { plural, path }: Names): string {
  if (path === `/${plural}`) return text;
  const inText = new RegExp(`([^\\s"'\`<>(),=|]*)/${plural}(?![\\w.:*-]|\\\\\\.)(?! of)`, "g");
  const lines = text.split("\n").map((line) =>
    // The name of a database in its URL.
    /postgres(?:ql)?:\/\/|\$\{USER\}|mysql:\/\//.test(line)
      ? line
      : line.replace(inText, (whole, before: string) =>
          OTHER_THAN_PATH.test(before) ? whole : before + path,
        ),
  );
  // Eden names a path by its words.
  return lines
    .join("\n")
    .replace(
      new RegExp(`\\{ ${plural}(?:: (\\w+))? \\} = treaty`, "g"),
      (_, as: string = plural) => `{ "${path.slice(1)}": ${as} } = treaty`,
    )
    .replaceAll(`Client["${plural}"]`, `Client["${path.slice(1)}"]`);
}

/** What stands before the plural in a file's path, an image's name or a link into Swagger UI. */
const OTHER_THAN_PATH =
  /swagger#|@|repo:|:\/$|^\.\.?(?:\/\w+)*$|^test|^src|s3:|^\/\/host|^\/\/localhost|database\/|drizzle/;

process.exitCode = await main(process.argv.slice(2));
