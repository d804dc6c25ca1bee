import { expect, test } from "bun:test";
import { parseOptions } from "./options.ts";

const PARTS = ["stored", "refused"];

test("parseOptions() measures every part unless some are named", () => {
  expect(parseOptions([], PARTS).parts).toEqual(PARTS);
  expect(parseOptions(["--part", "refused"], PARTS).parts).toEqual(["refused"]);
  expect(() => parseOptions(["--part", "starts"], PARTS)).toThrow(
    'Cannot measure --part "starts": expected stored, refused',
  );
});

test("parseOptions() takes a count over its preset, and refuses what is none", () => {
  const { rounds } = parseOptions(["--quick", "--rounds", "7"], PARTS);
  expect(rounds).toEqual({ rounds: 7, warmUp: 2, seconds: 1 });
  expect(() => parseOptions(["--seconds", "0"], PARTS)).toThrow(
    'Cannot use --seconds "0": expected a positive integer',
  );
});

test("parseOptions() puts the charts beside the JSON, unless they have a directory of their own", () => {
  expect(parseOptions(["--out", "a"], PARTS)).toMatchObject({ out: "a", charts: "a" });
  expect(parseOptions(["--charts", "b"], PARTS)).toMatchObject({ out: "dist", charts: "b" });
});
