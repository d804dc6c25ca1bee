import { expect, test } from "bun:test";
import { join } from "node:path";

import { PlantStoreError } from "../src/errors.ts";
import { ROOT } from "./support/program.ts";

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

class Renamed extends PlantStoreError {
  override readonly name = "DiskFull";
}

test.each<[what: string, copyOf: (error: PlantStoreError) => unknown, isOurs: boolean]>([
  ["itself", (error) => error, true],
  ["of a subclass with its own name", ({ code, message }) => new Renamed(code, message), true],
  ["a copy by Object.assign()", (error) => Object.assign(new Error(error.message), error), true],
  ["a copy without a message", (error) => ({ ...error, message: undefined }), false],
  ["a copy by structuredClone(), which has no code", (error) => structuredClone(error), false],
  [
    "another error with its name and code",
    ({ name, code }) => Object.assign(new Error("tea"), { name, code }),
    false,
  ],
  [
    "an error of a later version, with a code that is not known here",
    (error) => Object.assign(new Error("tea"), error, { code: "tea" }),
    false,
  ],
])("an error that is %s", (_what, copyOf, isOurs) => {
  const copy = copyOf(new PlantStoreError("id_taken"));
  expect(copy instanceof PlantStoreError).toBe(isOurs);
});

test("a class that extends PlantStoreError recognizes its own errors only", () => {
  expect(new PlantStoreError("id_taken") instanceof Renamed).toBe(false);
  expect(new Renamed("id_taken") instanceof Renamed).toBe(true);
});

test("a program that has frozen Error can have errors of ours", () => {
  const program = `
    Object.freeze(Error);
    const { PlantStoreError } = await import(${JSON.stringify(join(ROOT, "src/errors.ts"))});
    console.log(new PlantStoreError("id_taken").code);`;
  const { stdout, stderr } = Bun.spawnSync([process.execPath, "-e", program]);
  expect({ stdout: String(stdout), stderr: String(stderr) }).toEqual({
    stdout: "id_taken\n",
    stderr: "",
  });
});
