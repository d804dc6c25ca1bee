import { licensesOfProgram } from "./licenses.ts" with { type: "macro" };

/**
 * A text, once the program is built. From source, only what loads this file waits for the bundle
 * that it is made from.
 */
export const LICENSES: string = await licensesOfProgram();
