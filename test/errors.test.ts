import { expect, test } from "bun:test";

import { PlantStoreError } from "../src/errors.ts";

test("PlantStoreError captures a stack for an internal error only, and leaves those of other errors alone", () => {
  expect(new PlantStoreError("internal").stack).toContain("errors.test.ts");
  expect(new PlantStoreError("invalid_plant").stack ?? "").not.toContain("errors.test.ts");
  expect(new Error("another").stack).toContain("errors.test.ts");
});

test("PlantStoreError is an Error with its code, message, reason and cause", () => {
  const cause = new Error("disk I/O error");
  const error = new PlantStoreError("invalid_credentials", "no", { cause, reason: "unknown" });
  expect(error).toBeInstanceOf(Error);
  expect(error).toMatchObject({
    name: "PlantStoreError",
    code: "invalid_credentials",
    message: "no",
    reason: "unknown",
  });
  expect(error.cause).toBe(cause);
});
