import type { Plant as Fields } from "../../src/plant/plant.ts";

/** What every client is told. */
export interface Connection {
  readonly baseUrl: string;
  readonly token: string;
  /** More headers, or others in the place of the client's own. */
  readonly headers?: Readonly<Record<string, string>>;
  /** What sends the requests. */
  readonly fetch: (input: string | URL | Request, init?: RequestInit) => Promise<Response>;
}

/**
 * The statuses of the document beside 200: a generated client has to have a type for the body of
 * each.
 */
export type ErrorStatus = 400 | 401 | 403 | 409 | 413 | 415 | 500 | 503;

/** What a call came to, as the generated types have it. */
export type Outcome =
  | ({ readonly status: 200 } & { readonly [Field in keyof Fields]: Fields[Field] | undefined })
  | { readonly status: number; readonly error: number; readonly message: string };

/** The body of a request, as the generated types have it. */
export interface Plant extends Fields {
  readonly id: number;
}

/** How each program here calls the client that it is about. */
export type CreatePlant = (plant: Plant, connection: Connection) => Promise<Outcome>;

/** Whether two types are the same: `any` is the same as itself only. */
export type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
