import { memoryStore } from "../../src/adapters/memory.ts";
import { storeContract } from "../support/store_contract.ts";

storeContract("memoryStore()", memoryStore);
