/**
 * The contracts of the ports as tests, for your own adapters. They run under any test runner, such as those of
 * Bun, Deno and Node.
 *
 * @module
 */
export type { ContractCase } from "./contract_case.ts";
export {
  type OpenPlantStore,
  plantStoreContract,
  type ReopenPlantStore,
} from "./plant_store_contract.ts";
export { type OpenTokenStore, tokenStoreContract } from "./token_store_contract.ts";
