/**
 * The Plant Store as a module: the app, and the ports for its storage, authentication and logs. It
 * needs web standard APIs, `hash` of `node:crypto`, and a runtime that allows code generation while
 * `createApp()` runs.
 *
 * @module
 */
export { type AppOptions, createApp, type RenderMetrics } from "./http/app.ts";
export {
  type Accepted,
  type Authenticate,
  type Caller,
  type Lack,
  type Refused,
  type Scope,
  SCOPES,
  type Verdict,
} from "./auth/authenticate.ts";
export type { Commit } from "./group_commit/group_commit.ts";
export { memoryStore, memoryTokens } from "./database/memory.ts";
export { staticTokens } from "./auth/static_tokens.ts";
export type {
  AddOptions,
  AddOutcome,
  PlantStore,
  StoreOutcome,
} from "./group_commit/plant_store.ts";
export { DOCS_FILES, type DocsFiles } from "./http/docs.ts";
export {
  type ErrorCode,
  type ErrorRow,
  ERRORS,
  PlantStoreError,
  type PlantStoreErrorOptions,
  statusOf,
} from "./errors.ts";
export {
  type GroupCommit,
  groupCommit,
  type GroupCommitOptions,
} from "./group_commit/group_commit.ts";
export { INT64_MAX, INT64_MIN, type NewPlant, type Plant, samePlant } from "./plant/plant.ts";
export { JWT_ALGORITHMS, jwtAuthenticator } from "./auth/jwt/jwt.ts";
export type { JwtAlgorithm, JwtAuthenticator, JwtOptions } from "./auth/jwt/jwt.ts";
export type { ProviderKeysOptions } from "./auth/jwt/provider_keys.ts";
export { type TokenCache, tokenCache, type TokenCacheOptions } from "./auth/token_cache.ts";
export { mintToken } from "./auth/token_format.ts";
export type {
  NewToken,
  ServerTokens,
  TokenRecord,
  TokenStore,
  TokenUse,
} from "./auth/token_store.ts";
export type { CompletedRequest, ObservedRequest, Observer } from "./http/observer.ts";
export { readiness, type ReadinessOptions } from "./http/health.ts";
