import { expect, test } from "bun:test";

import { costTable, median, outcome, render, table } from "./report.ts";
import type { Cost } from "./servers.ts";

test("outcome() compares the median with the maximum, or the minimum, that the goal allows", () => {
  expect(outcome("CPU", [1.4, 1.1, 1.2], 1.25)).toEqual({
    goal: "CPU",
    value: 1.2,
    range: [1.1, 1.4],
    limit: 1.25,
    met: true,
  });

  expect(outcome("CPU", [1.3], 1.25).met).toBe(false);
  expect(outcome("plants/s", [13], 12, "least").met).toBe(true);
  expect(outcome("plants/s", [11], 12, "least").met).toBe(false);
});

test("table() aligns names to the left and figures to the right", () => {
  const rows = [
    ["plant-store", "31.7"],
    ["Hono", "156.2"],
  ];
  expect(table(["program", "CPU"], rows).split("\n")).toEqual([
    "| program     |   CPU |",
    "| ----------- | ----: |",
    "| plant-store |  31.7 |",
    "| Hono        | 156.2 |",
  ]);
});

test("render() says what was missed, and what could not be measured", () => {
  const text = render({
    title: "A stored plant",
    about: "64 connections.",
    columns: ["program", "CPU"],
    rows: [["plant-store", "31.7"]],
    goals: [outcome("CPU / lean", [1.6], 1.5)],
    missing: ["PostgreSQL: there is none"],
  });

  expect(text).toStartWith("## A stored plant\n\n64 connections.\n\n| program ");
  expect(text).toContain("\nNot measured: PostgreSQL: there is none\n");
  expect(text).toContain("| CPU / lean |     1.60 | 1.60 to 1.60 |  1.50 | not met |");
});

test("costTable() shows the median of the rounds, and the maximum of the longest wait", () => {
  const rounds = [3_000, 9_000, 1_000].map(
    (perSecond) => ({ perSecond, maxMs: perSecond }) as Cost,
  );
  const { columns, rows } = costTable(new Map([["plant-store", rounds]]), "program", [
    ["plants/s", "perSecond", 0],
    ["longest ms", "maxMs", 1],
  ]);
  expect([columns, ...rows]).toEqual([
    ["program", "plants/s", "longest ms"],
    ["plant-store", "3,000", "9,000.0"],
  ]);
});

test("median() is the middle value, and the mean of two in the middle", () => {
  expect([median([9, 1, 5]), median([9, 1, 5, 6]), median([])]).toEqual([5, 5.5, Number.NaN]);
});
