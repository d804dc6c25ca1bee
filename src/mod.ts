/**
 * The Plant Store as a module: the app and the ports it stands on, for any runtime with web standards.
 *
 * @module
 */
export { type AppOptions, createApp } from "./app.ts";
export type { Authenticate, Verdict } from "./auth.ts";
export { DOCS_FILES, type DocsFiles } from "./docs.ts";
export { type ErrorCode, type ErrorRow, ERRORS, PlantStoreError, statusOf } from "./errors.ts";
export { type GroupCommit, groupCommit, type GroupCommitOptions } from "./group_commit.ts";
export { INT64_MAX, INT64_MIN, type NewPlant, type Plant, samePlant } from "./plant.ts";
export { jwtAuthenticator, type JwtOptions } from "./jwt.ts";
export { type KnownTokens, knownTokens, type KnownTokensOptions } from "./known_tokens.ts";
export { type MintOptions, mintToken, type Sha256, tokenFinder } from "./tokens.ts";
export type { TokenRecord, TokenStore, TokenUse } from "./token_store.ts";
export type { Answered, Observer } from "./observer.ts";
export { readiness, type ReadinessOptions } from "./readiness.ts";
export type { AddOutcome, PlantStore } from "./store.ts";
