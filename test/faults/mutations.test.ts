import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ABLATED_PARTS } from "../bench/ablated_parts.ts";
import type { Mutation } from "../support/mutant.ts";
import { ROOT } from "../support/program.ts";

const files = Array.from(new Bun.Glob("*mutations.ts").scanSync(import.meta.dir)).toSorted();
const mutations = await Promise.all(
  files.map(async (file) =>
    Object.entries((await import(`./${file}`)) as Record<string, readonly Mutation[]>),
  ),
);

const ablations = ABLATED_PARTS.map(({ name, without }) => [name, without] as const);

test.each([...mutations.flat(), ...ablations])(
  "the mutation %s fits the source",
  (_name, changes) => {
    for (const { file, from } of changes) {
      expect({
        file,
        from,
        times: readFileSync(join(ROOT, file), "utf8").split(from).length - 1,
      }).toMatchObject({
        times: 1,
      });
    }
  },
);
