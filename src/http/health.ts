import { Elysia } from "elysia";

/**
 * The two public paths for supervisors and load balancers: `/livez` is 200 while the process can respond, `/readyz`
 * while a plant could be stored.
 *
 * @param ready Resolves when a plant could be stored now; throws a `PlantStoreError` when not.
 */
export function health(ready: () => Promise<void>) {
  return new Elysia({ name: "health" })
    .get("/livez", () => ({ status: "ok" }), { detail: { hide: true } })
    .get(
      "/readyz",
      async () => {
        await ready();
        return { status: "ok" };
      },
      { detail: { hide: true } },
    );
}
