import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Mutation } from "../support/mutant.ts";
import { ROOT } from "../support/program.ts";
import * as mutations from "./mutations.ts";

test.each(Object.entries<readonly Mutation[]>(mutations))(
  "the mutation %s fits the source",
  (_name, changes) => {
    for (const { file, from } of changes) {
      const times = readFileSync(join(ROOT, file), "utf8").split(from).length - 1;
      expect({ file, from, times }).toEqual({ file, from, times: 1 });
    }
  },
);
