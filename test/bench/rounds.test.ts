import { expect, test } from "bun:test";

import { figures, interleave, ratios, steadyCost } from "./rounds.ts";
import type { LoadOptions } from "./run_load.ts";
import type { Cost } from "./servers.ts";

test("interleave() measures every subject once a round, in alternating order", async () => {
  const order: number[] = [];
  const subjects = new Map([
    ["a", 1],
    ["b", 2],
    ["c", 3],
  ]);

  const costs = await interleave(subjects, 3, async (subject) => {
    order.push(subject);
    return { cpuMicros: order.length } as Cost;
  });

  expect(order).toEqual([1, 2, 3, 3, 2, 1, 1, 2, 3]);
  expect(figures(costs, "b", "cpuMicros")).toEqual([2, 5, 8]);
  expect(() => figures(costs, "d", "cpuMicros")).toThrow('"d" did not run');
});

test("steadyCost() ignores the first load after a pause, which is as long for each of several servers", async () => {
  const loads: LoadOptions[] = [];
  const load = async (options: LoadOptions) => ({ cpuMicros: loads.push(options) }) as Cost;
  const options = { connections: 64, seconds: 3 };
  expect((await steadyCost({ load, servers: 3 }, options)).cpuMicros).toBe(2);
  expect(loads).toEqual([{ ...options, seconds: 9 }, options]);
});

test("ratios() compares within each round", () => {
  expect(ratios([30, 100], [20, 50])).toEqual([1.5, 2]);
});
