import { expect, setDefaultTimeout, test } from "bun:test";
import { symlinkSync } from "node:fs";
import { join } from "node:path";

import { type Step, STEPS } from "../support/field_steps.ts";
import { blocks } from "../support/guides.ts";
import { skipped } from "../support/missing.ts";
import { failuresOfOk, linkPackages, mutate } from "../support/mutant.ts";
import {
  emptyDirectory,
  LONG_TEST_TIMEOUT_MS,
  ROOT,
  temporaryDirectory,
} from "../support/program.ts";

// A fork as the page "Make it yours" makes one: of an old version, with another record and a field
// of its own. Then it takes today's version.

setDefaultTimeout(4 * LONG_TEST_TIMEOUT_MS);

/** The version that is forked. */
const OLD = "84d776a";

const hasHistory =
  (await Bun.$`git cat-file -e ${OLD}^{commit}`.cwd(ROOT).quiet().nothrow()).exitCode === 0;

/** The field in that version, after the renaming: texts that occur once, and what follows them. */
const FIELD: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "src/seed/seed.ts": {
    "readonly tag?: string;\n": "  readonly light?: string;\n",
    'tag: "optional",\n': '  light: "optional",\n',
  },
  "src/database/sqlite/schema.ts": { "tag: text(),\n": "  light: text(),\n" },
  "src/database/postgres/schema.ts": { "tag: text(),\n": "  light: text(),\n" },
  "src/database/sqlite/migrations.ts": {
    'token_scopes.sql" with { type: "text" };\n':
      'import light from "../../../drizzle/sqlite/0003_light.sql" with { type: "text" };\n',
    '"0002_token_scopes": tokenScopes,\n': '  "0003_light": light,\n',
  },
  "src/database/postgres/migrations.ts": {
    'seeds_and_tokens.sql" with { type: "text" };\n':
      'import light from "../../../drizzle/postgres/0001_light.sql" with { type: "text" };\n',
    '"0000_seeds_and_tokens": seedsAndTokens,\n': '  "0001_light": light,\n',
  },
  "src/http/seeds.ts": {
    '"indoor")),\n': '  light: t.Optional(storableText("How much light it needs", "bright")),\n',
  },
  "src/http/openapi.ts": { '{ name: "Monstera deliciosa", tag: "indoor"': ', light: "bright"' },
  "src/http/README.md": {
    "likewise; leave it out for no tag: `null` is refused           |\n":
      "| `light` | no | likewise |\n",
  },
  "README.md": {
    "| `tag`  | no       | likewise                                      |\n":
      "| `light` | no | likewise |\n",
  },
};

/** By what the fork and this project tell their databases apart: "seed" in ASCII. */
const IDENTITY: Readonly<Record<string, string>> = {
  "src/database/sqlite/migrations.ts": "APPLICATION_ID = 0x73656564;",
  "src/database/sqlite/FILES.md": '`0x73656564`, "seed"',
  "src/database/postgres/migrations.ts": "LOCK = 0x73656564;",
};

/** Whether the old version had no such place: there a client did not know its plant by all fields. */
const isNew = ({ insert }: Step) =>
  Object.keys(insert).some((text) => /fields =|^= \[/i.test(text));

const RECORD = "Another record";

test.skipIf(!hasHistory && skipped(`a fork: the history of this clone does not go back to ${OLD}`))(
  "a fork with a record and a field of its own merges a later version, and passes what `bun run ok` runs",
  async () => {
    using home = emptyDirectory();
    const [rename = "", begin = "", fixtures = ""] = blocks(RECORD, "bash");
    const [takeLater = ""] = blocks("Take later versions", "bash");
    const fork = home.at("fork");

    // This checkout, as the project that is forked.
    await Bun.$`git clone --quiet --bare ${ROOT} origin.git
      git -C origin.git update-ref refs/heads/main $(git -C ${ROOT} rev-parse HEAD)
      git clone --quiet --no-checkout origin.git fork`.cwd(home.path);
    await Bun.write(home.at("rename.sh"), rename);
    const run = (script: string) =>
      Bun.$`bash -euo pipefail -c ${script}`
        .cwd(fork)
        .env({ ...process.env, ...AUTHOR, TMPDIR: temporaryDirectory() })
        .quiet()
        .nothrow();
    const require = async (script: string) => {
      const { exitCode, stdout, stderr } = await run(script);
      if (exitCode !== 0) throw new Error(`${script}\n${stdout}${stderr}`);
    };

    await require(`git switch --quiet --force-create main ${OLD}`);
    symlinkSync(join(ROOT, "node_modules"), join(fork, "node_modules"));
    // A folder that `.gitignore` names is a link here, which it does not.
    await require("echo node_modules >> .git/info/exclude");
    await require(begin);
    addField(fork, FIELD);
    await require("bun run db:generate --name light && git add --all && git commit -m 'Add light'");

    const merge = await run(takeLater);
    expect(merge.exitCode).not.toBe(0);
    const unmerged = (await run("git diff --name-only --diff-filter=U")).stdout.toString();
    const conflicts = unmerged.trim().split("\n");
    expect(conflicts.filter((file) => !(file in FIELD))).toEqual([]);

    await require(`git checkout --theirs ${conflicts.join(" ")}`);
    for (const step of STEPS) {
      const file = renamed(step.file);
      if (conflicts.includes(file) || isNew(step)) addField(fork, { [file]: step.insert });
    }
    await require("bun run db:generate && git add --all && git commit -m 'Merge upstream'");
    for (const [file, identity] of Object.entries(IDENTITY))
      expect(await Bun.file(join(fork, file)).text()).toContain(identity);
    await require(fixtures);
    await require("bun run fmt");

    linkPackages(fork);
    expect(await failuresOfOk(fork)).toEqual([]);
    expect(await Bun.file(join(fork, "src/http/seeds.ts")).text()).toContain('"/seeds"');
    expect((await run("git diff --stat origin/main -- LICENSE")).stdout.toString()).toBe("");
  },
);

const AUTHOR = {
  GIT_AUTHOR_NAME: "Fork",
  GIT_AUTHOR_EMAIL: "fork@example.org",
  GIT_COMMITTER_NAME: "Fork",
  GIT_COMMITTER_EMAIL: "fork@example.org",
};

function addField(fork: string, edits: typeof FIELD): void {
  for (const [file, inserts] of Object.entries(edits))
    for (const [before, added] of Object.entries(inserts))
      mutate(fork, { file, from: renamed(before), to: renamed(before + added) });
}

function renamed(text: string): string {
  return text.replaceAll("plant", "seed").replaceAll("Plant", "Seed");
}
