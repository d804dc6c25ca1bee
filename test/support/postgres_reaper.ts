import { spawn } from "node:child_process";
import { once } from "node:events";

/**
 * Waits for the end of its standard input, stops the server, and removes its directory. An immediate shutdown removes
 * the shared memory, which a SIGKILL leaves behind. A server that is stopped by a signal continues first. A process id
 * may belong to another program by then: only a process that works in the data directory is the server.
 */
const REAPER = `
cat > /dev/null
pid=$(head -n 1 "$0/data/postmaster.pid")
while [ "$(readlink "/proc/$pid/cwd")" = "$0/data" ]; do
  kill -CONT "$pid"
  kill -QUIT "$pid"
  sleep 0.02
done
rm -rf "$0"`;

/**
 * Starts a process that ends the PostgreSQL of a directory, and removes the directory, when `end` is called or this
 * process ends, however it ends: a test run that is killed leaves nothing behind.
 *
 * @param directory The absolute path of the directory that has the data directory, `data`.
 */
export function startReaper(directory: string) {
  // In a session of its own: Ctrl-C ends the tests and not the reaper.
  const reaper = spawn("sh", ["-c", REAPER, directory], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  // A program that could not start its cluster ends with its error, and waits for nothing.
  reaper.unref();
  const exited = once(reaper, "exit");
  return {
    async end(): Promise<void> {
      reaper.ref();
      reaper.stdin.end();
      await exited;
    },
  };
}
