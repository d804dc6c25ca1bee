import type { Subcommand } from "./command.ts";
import { writeOutput } from "./terminal.ts";

/** `plant-store licenses`. */
export const licenses: Subcommand = {
  usage: "licenses",
  description: "Print the licenses of the program and of what it contains",
  flags: [],
  example: "licenses",
  async run({ io }) {
    const { LICENSES } = await import("../build/embedded_licenses.ts");
    await writeOutput(io, LICENSES);
  },
};
