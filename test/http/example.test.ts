import { expect, test } from "bun:test";

import { postPlant, testApp } from "../support/app.ts";
import { readPlant } from "../support/responses.ts";

test("a plant without a tag is returned without one", async () => {
  const response = await testApp().fetch(postPlant({ id: 1, name: "Fern" }));

  expect(await readPlant(response)).toEqual({ status: 200, body: { name: "Fern" } });
});
