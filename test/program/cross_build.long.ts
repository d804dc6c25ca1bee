import { expect, setDefaultTimeout, test } from "bun:test";
import packageJson from "../../package.json" with { type: "json" };
import { emptyDirectory, LONG_TEST_TIMEOUT_MS, ROOT } from "../support/program.ts";

setDefaultTimeout(LONG_TEST_TIMEOUT_MS);

/** Of elf(5), and of the headers of Mach-O and PE: the field that names the processor, and what else tells systems apart. */
const SYSTEMS = {
  "bun-linux-arm64": { magic: "\x7fELF", processor: "b700", interpreter: "/lib/ld-linux-aarch64" },
  "bun-linux-arm64-musl": { magic: "\x7fELF", processor: "b700", interpreter: "/lib/ld-musl-aarch64" },
  "bun-linux-x64-musl": { magic: "\x7fELF", processor: "3e00", interpreter: "/lib/ld-musl-x86_64" },
  "bun-darwin-arm64": { magic: "\xcf\xfa\xed\xfe", processor: "0c000001", interpreter: "/usr/lib/dyld" },
  "bun-darwin-x64": { magic: "\xcf\xfa\xed\xfe", processor: "07000001", interpreter: "/usr/lib/dyld" },
  "bun-windows-x64": { magic: "MZ", processor: "6486", interpreter: "PE\0\0" },
} as const;

/** Bun gets the runtime of each system from the registry, once. */
test.each(Object.entries(SYSTEMS))("bun run build --target=%s builds an executable for it", async (target, system) => {
  using directory = emptyDirectory();
  const outfile = directory.at("plant-store");
  const command = `${packageJson.scripts.build.replace("dist/plant-store", outfile)} --target=${target}`;
  await Bun.$`sh -c ${command.replace(/^bun /, `"${process.execPath}" `)}`.cwd(ROOT).quiet();
  const file = Bun.file(outfile + (system.magic === "MZ" ? ".exe" : ""));
  const head = Buffer.from(await file.slice(0, 16_384).arrayBuffer());
  const processorAt = { "\x7fELF": 18, "\xcf\xfa\xed\xfe": 4, MZ: head.readUInt32LE(0x3c) + 4 }[system.magic];
  expect({
    magic: head.toString("latin1", 0, system.magic.length),
    processor: head.toString("hex", processorAt, processorAt + system.processor.length / 2),
    interpreter: head.includes(system.interpreter) ? system.interpreter : "another",
  }).toEqual(system);
});
