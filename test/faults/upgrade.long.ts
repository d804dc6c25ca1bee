import { expect, setDefaultTimeout, test } from "bun:test";

import { emptyDirectory, LONG_TEST_TIMEOUT_MS } from "../support/program.ts";
import { upgrade, UPGRADED } from "./upgrade.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

test("on a SQLite file, a server goes on while the next version adds to it, and starts again", async () => {
  using directory = emptyDirectory();
  const upgraded = await upgrade("sqlite", `file:${directory.at("plants.db")}`, false);
  expect(upgraded).toEqual(UPGRADED);
});
