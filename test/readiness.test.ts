import { expect, test } from "bun:test";
import { PlantStoreError } from "../src/errors.ts";
import { readiness } from "../src/readiness.ts";

const FULL = new PlantStoreError("storage_unavailable", "storage is full");

test("readiness() follows the probe, both ways", async () => {
  let fault: Error | undefined;
  const ready = readiness(
    async () => {
      if (fault !== undefined) throw fault;
    },
    { freshMs: 0 },
  );
  await ready();
  fault = FULL;
  await expect(ready()).rejects.toBe(FULL);
  fault = undefined;
  await ready();
});

test("readiness() asks once for many who ask at once, and again only when the verdict is old", async () => {
  let probes = 0;
  const ready = readiness(
    async () => {
      probes++;
    },
    { freshMs: 60_000 },
  );
  await Promise.all(Array.from({ length: 100 }, ready));
  await ready();
  expect(probes).toBe(1);
});

test("readiness() gives the last verdict while a probe is slow, and refuses when it hangs", async () => {
  let hang = false;
  const probe = () => (hang ? new Promise<void>(() => {}) : Promise.resolve());
  const ready = readiness(probe, { freshMs: 0, patienceMs: 1, stuckMs: 100 });
  await ready();
  hang = true;
  await ready();
  await Bun.sleep(100);
  await expect(ready()).rejects.toMatchObject({ code: "storage_unavailable" });
});

test("readiness() refuses until the first probe has answered", async () => {
  const ready = readiness(() => new Promise<void>(() => {}), { patienceMs: 1 });
  await expect(ready()).rejects.toMatchObject({ code: "storage_unavailable" });
});
