import { expect, test } from "bun:test";
import { median, ratios } from "./statistics.ts";

test("median() is the middle value, and the mean of two in the middle", () => {
  expect(median([9, 1, 5])).toBe(5);
  expect(median([9, 1, 5, 6])).toBe(5.5);
  expect(median([])).toBeNaN();
});

test("ratios() compares within each round", () => {
  expect(ratios([30, 100], [20, 50])).toEqual([1.5, 2]);
  expect(() => ratios([1], [1, 2])).toThrow("Cannot compare 1 rounds with 2");
});
