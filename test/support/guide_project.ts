import { cpSync, existsSync, mkdirSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";

import { installPackage } from "./installed_package.ts";
import { type ModuleRuntime, RUNTIMES_MODULES } from "./module_runtimes.ts";
import { freePort, ROOT, start, temporaryDirectory } from "./program.ts";

/** What the guides have their readers install beside the package, and the compilers' types. */
const BESIDE = ["@elysiajs/eden", "swagger-ui-dist", "@types/node", "undici-types", "bun-types"];

/** Likewise, of the packages that are tested with every runtime. */
const FRAMEWORKS = ["srvx", "hono", "express", "@types/express", "fastify"];

/**
 * A project of somebody who follows the guides: with the packed package, and what its programs import.
 * It is gone at the end of the scope.
 */
export async function guideProject() {
  const directory = await installPackage();
  const { path } = directory;
  const modules = join(path, "node_modules");

  // A copy finds the project's Elysia.
  for (const name of BESIDE)
    cpSync(join(ROOT, "node_modules", name), join(modules, name), {
      recursive: true,
      dereference: true,
    });

  // A link finds the dependencies that are installed beside it.
  if (existsSync(RUNTIMES_MODULES))
    for (const name of FRAMEWORKS) {
      mkdirSync(dirname(join(modules, name)), { recursive: true });
      symlinkSync(join(RUNTIMES_MODULES, name), join(modules, name));
    }

  const write = (name: string, text: string) => Bun.write(join(path, name), text);

  /** Runs a command to its end, with more of an environment. */
  async function run(
    command: readonly string[],
    env: Record<string, string> = {},
  ): Promise<{ exitCode: number; output: string }> {
    const child = Bun.spawn([...command], {
      cwd: path,
      env: { PATH: process.env["PATH"], TMPDIR: temporaryDirectory(), ...env },
      stderr: "pipe",
    });
    const output = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
    ]);

    return { exitCode: await child.exited, output: output.join("") };
  }

  return {
    path,
    write,
    run,

    /**
     * Runs a program that listens on port 3000, on a free port instead, and waits until it responds.
     */
    async serve({ run }: ModuleRuntime, code: string) {
      const port = freePort();
      const file = `serve_${port}.ts`;
      await write(file, code.replace("3000", String(port)));
      const program = start({ program: [...run, file], cwd: path });
      const url = `http://127.0.0.1:${port}`;

      while (!(await isListening(url))) {
        if (program.child.exitCode !== null)
          throw new Error(`The program ended:\n${await program.stderr.end}`);
        await Bun.sleep(20);
      }

      return { ...program, url };
    },

    /**
     * Compiles these files, with these options beside the strict ones. Resolves to the errors, one line
     * each.
     */
    async compile(command: readonly string[], files: readonly string[], options: object) {
      const compilerOptions = {
        target: "esnext",
        lib: ["ESNext"],
        types: ["node"],
        noEmit: true,
        ...STRICT,
        ...options,
      };

      await write("tsconfig.json", JSON.stringify({ compilerOptions, files }));
      const { exitCode, output } = await run([...command, "--pretty", "false"]);

      return {
        exitCode,
        errors: output
          .split("\n")
          .filter((line) => /\berror TS/.test(line) && !line.startsWith(" ")),
      };
    },

    [Symbol.dispose]: () => directory[Symbol.dispose](),
  };
}

const STRICT = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true };

function isListening(url: string): Promise<boolean> {
  return fetch(url).then(
    () => true,
    () => false,
  );
}
