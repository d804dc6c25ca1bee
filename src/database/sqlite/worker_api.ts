import { DatabaseError } from "../database.ts";
import { type ErrorCode, PlantStoreError } from "../../errors.ts";
import type { NewPlant } from "../../plant/plant.ts";
import type { PlantStore } from "../plant_store.ts";
import type { TokenStore } from "../../auth/token_store.ts";
import type { TokenColumns } from "./token_columns.ts";

/** A page by columns: a structured clone of three lists costs less than one of as many objects as there are plants. */
export interface PlantColumns {
  readonly ids: readonly bigint[];
  readonly names: readonly string[];
  readonly tags: readonly (string | undefined)[];
}

/** Turns a page into columns. */
export function toColumns(plants: readonly NewPlant[]): PlantColumns {
  return {
    ids: plants.map(({ id }) => id),
    names: plants.map(({ name }) => name),
    tags: plants.map(({ tag }) => tag),
  };
}

/** The inverse of {@linkcode toColumns}. */
export function fromColumns({ ids, names, tags }: PlantColumns): NewPlant[] {
  return ids.map((id, row) => {
    const name = names[row] as string;
    const tag = tags[row];
    return tag === undefined ? { id, name } : { id, name, tag };
  });
}

/** What the Worker that holds the connection can be asked, one request after the other, beside `BatchMessage`. */
export interface WorkerApi {
  open(path: string): Promise<void>;
  probe: PlantStore["probe"];
  pageFrom(id: bigint): Promise<PlantColumns>;
  tokensAfter(row: bigint): Promise<TokenColumns>;
  tokenRevision: TokenStore["revision"];
  addToken: TokenStore["add"];
  revokeToken: TokenStore["revoke"];
  deleteToken: TokenStore["delete"];
  pruneTokens: TokenStore["prune"];
  recordTokenUses: TokenStore["recordUses"];
  reportDamage(finding: string): Promise<void>;
  close(): Promise<void>;
}

/** A request on its way to the Worker; the response has the same id. */
export type WorkerRequest = {
  [Method in keyof WorkerApi]: { id: number; method: Method; args: Parameters<WorkerApi[Method]> };
}[keyof WorkerApi];

/** A response on its way back; or, without a request, word that the database or a checkpoint failed. */
export type WorkerResponse =
  | { readonly type: "result"; readonly id: number; readonly result: unknown }
  | { readonly type: "error"; readonly id: number; readonly error: SerializedError }
  | { readonly type: "failed"; readonly error: SerializedError }
  | { readonly type: "checkpoint_failed"; readonly error: SerializedError };

/** An error as a structured clone can carry it: an error of our own classes would arrive as a plain `Error`. */
export interface SerializedError {
  readonly name: string;
  readonly message: string;
  readonly code?: ErrorCode;
  readonly cause?: string;
}

/** Turns an error into an object that can be cloned. */
export function serializeError(error: unknown): SerializedError {
  if (error instanceof PlantStoreError) {
    const { name, message, code, cause } = error;
    return { name, message, code, cause: String(cause) };
  }
  if (error instanceof Error) return { name: error.name, message: error.message, cause: String(error.stack) };
  return { name: "Error", message: String(error) };
}

/** The inverse of {@linkcode serializeError}. */
export function deserializeError({ name, message, code, cause }: SerializedError): Error {
  if (code !== undefined) return new PlantStoreError(code, message, { cause });
  if (name === "DatabaseError") return new DatabaseError(message, { cause });
  return new Error(message, { cause });
}
