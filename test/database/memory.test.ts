import { memoryDatabase } from "../../src/database/memory.ts";
import { testDatabaseContract } from "../support/database_contract.ts";

testDatabaseContract("memoryDatabase()", async () => memoryDatabase());
