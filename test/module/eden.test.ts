import { expect, test } from "bun:test";

import { treaty } from "@elysiajs/eden";

import { createApp, groupCommit, memoryStore, type Plant, staticTokens } from "../../src/mod.ts";
import type { ErrorStatus, Same } from "../clients/generated_client.ts";
import { bearer, TOKEN } from "../support/client.ts";
import { section } from "../support/guides.ts";
import { fern, returned, TEXT } from "../support/plants.ts";

type Client = ReturnType<typeof treaty<ReturnType<typeof createApp>>>;
type CreatePlant = Client["plants"]["post"];
type Body = Parameters<CreatePlant>[0];
type Result = Awaited<ReturnType<CreatePlant>>;
type Failure = NonNullable<Result["error"]>;

/** The members of a type, however it was put together. */
type Flat<T> = { [Key in keyof T]: T[Key] };

/** The type as Elysia infers it from a schema. */
type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** The body of the error with this status. */
type ErrorBody<Status> = Flat<Extract<Failure, { status: Status }>["value"]>;

test("Eden infers the route, its body and the response of each status", () => {
  const isTyped: {
    body: Same<Flat<Body>, Flat<{ id: number } & Writable<Plant>>>;
    data: Same<Flat<NonNullable<Result["data"]>>, Writable<Plant>>;
    // 422 is Elysia's own, for bodies that it validates itself; here none is.
    statuses: Same<Failure["status"], ErrorStatus | 422>;
    conflict: Same<ErrorBody<409>, { error: number; message: string }>;
    unavailable: Same<ErrorBody<503>, { error: number; message: string }>;
  } = { body: true, data: true, statuses: true, conflict: true, unavailable: true };

  expect(Object.values(isTyped)).toEqual(Object.values(isTyped).map(() => true));
});

test("with `parseDate: false`, as the guide says, a name that looks like a date stays a string", async () => {
  expect(section("What the package exports")).toContain(
    "treaty<ReturnType<typeof createApp>>(url, { parseDate: false })",
  );

  const store = memoryStore();
  const authenticate = staticTokens([TOKEN]);
  const app = createApp({ plants: groupCommit(store), ready: () => store.probe(), authenticate });
  const { plants } = treaty(app, { parseDate: false });
  const fields = returned(fern({ [TEXT]: "2024-01-01" }));
  const { data } = await plants.post({ id: 1, ...fields }, { headers: bearer() });

  expect(data).toEqual(fields);
});
