import { executable } from "../support/executable.ts";
import { exitCodeOf, type StartOptions, temporaryDirectory } from "../support/program.ts";

/**
 * Starts the program on a terminal. At the end of the scope it is killed.
 *
 * @returns What is on the screen, without the carriage returns of its lines, and how to type there.
 */
export function startOnTerminal({ args = [], cwd, env = {} }: StartOptions) {
  let screen = "";
  const decoder = new TextDecoder();
  const data = (_: unknown, bytes: Uint8Array) =>
    void (screen += decoder.decode(bytes, { stream: true }).replaceAll("\r", ""));

  const child = Bun.spawn([...executable(), ...args], {
    ...(cwd === undefined ? {} : { cwd }),
    env: { PATH: process.env["PATH"] ?? "", TMPDIR: temporaryDirectory(), ...env },
    terminal: { cols: 80, rows: 24, data },
  });

  return {
    screen: () => screen,
    type: (text: string) => child.terminal?.write(text),
    exitCode: () => exitCodeOf(child),

    /** Waits until the screen shows a text. */
    async until(text: string): Promise<void> {
      while (!screen.includes(text)) {
        if (child.exitCode !== null)
          throw new Error(`The program ended without ${text}:\n${screen}`);
        await Bun.sleep(2);
      }
    },

    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
      child.terminal?.close();
    },
  };
}
