import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ABLATED_PARTS } from "../bench/ablated_parts.ts";
import { ROOT } from "../support/program.ts";
import * as mutations from "./mutations.ts";

const ablations = ABLATED_PARTS.map(({ name, without }) => [`without ${name}`, without] as const);

test.each([...Object.entries(mutations), ...ablations])(
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
