/**
 * The contracts of the ports as tests, for adapters of your own: they need no test runner of their own, and run under
 * that of Bun, Deno and Node.
 *
 * @module
 */
export { type ContractCase, type OpenDatabase } from "./contract_case.ts";
export { databaseContract } from "./database_contract.ts";
export { plantStoreContract } from "./plant_store_contract.ts";
export { tokenStoreContract } from "./token_store_contract.ts";
