/**
 * The contracts of the ports as tests, for adapters of your own. They run under any test runner,
 * such as that of Bun, Deno or Node.
 *
 * @module
 */
export { type ContractCase, type OpenDatabase } from "./contract_case.ts";
export { databaseContract } from "./database_contract.ts";
export { plantStoreContract } from "./plant_store_contract.ts";
export { tokenStoreContract } from "./token_store_contract.ts";
