import { expect, test } from "bun:test";

import { postPlant, testApp } from "../support/app.ts";
import { fern, returned } from "../support/plants.ts";
import { readPlant } from "../support/responses.ts";

test("a plant is returned without its id", async () => {
  const response = await testApp().fetch(postPlant(fern()));

  expect(await readPlant(response)).toEqual({ status: 200, body: returned(fern()) });
});
