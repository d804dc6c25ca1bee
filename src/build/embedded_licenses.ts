import { licensesOfProgram } from "./licenses.ts" with { type: "macro" };

/**
 * The licenses of the program. The build writes the text in here. From source, loading this file
 * bundles the program first: so only the command that prints the text loads it.
 */
export const LICENSES: string = await licensesOfProgram();
