/**
 * The contracts of the ports as tests, for adapters of your own. They run under any test runner,
 * such as that of Bun, Deno or Node.
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
