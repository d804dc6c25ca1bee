import { memoryDatabase } from "../../src/adapters/memory.ts";
import { testDatabaseContract } from "../support/database_contract.ts";

testDatabaseContract("memoryDatabase()", async () => memoryDatabase());
