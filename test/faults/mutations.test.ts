import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ROOT } from "../support/program.ts";
import * as mutations from "./mutations.ts";

test.each(Object.entries(mutations))("the mutation %s fits the source", (_name, changes) => {
  for (const { file, from } of changes) {
    expect({
      file,
      from,
      times: readFileSync(join(ROOT, file), "utf8").split(from).length - 1,
    }).toMatchObject({
      times: 1,
    });
  }
});
