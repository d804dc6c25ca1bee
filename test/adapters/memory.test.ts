import { memoryDatabase } from "../../src/adapters/memory.ts";
import { databaseContract } from "../support/database_contract.ts";

databaseContract("memoryDatabase()", async () => memoryDatabase());
