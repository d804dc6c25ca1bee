import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { post, TOKEN } from "../support/client.ts";
import { emptyDirectory, runToEnd, startServer, TEST_TIMEOUT_MS } from "../support/program.ts";
import { shell } from "../support/shell.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

/** The program among mounts of its own, which a script makes first. They are gone when it ends. */
function mounting(script: string): string[] {
  return ["unshare", "--mount", ...shell(`${script} && exec "$@"`)];
}

function skipsMounts(): boolean {
  const { success } = Bun.spawnSync(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
  if (!success) console.warn("Skipped, databases among mounts: mounting needs root, and unshare of util-linux");
  return !success;
}

test.skipIf(skipsMounts())(
  "a database that an image brings in a lower layer is served at the first start",
  async () => {
    using here = emptyDirectory();
    for (const name of ["image", "layer", "data"]) mkdirSync(here.at(name));
    expect((await runToEnd({ cwd: here.at("image"), args: ["token", "create", "garden"] })).exitCode).toBe(0);
    const overlay = `
    mount -t tmpfs tmpfs layer && mkdir layer/upper layer/work &&
    mount -t overlay overlay -o lowerdir=image,upperdir=layer/upper,workdir=layer/work data`;

    await using server = await startServer({
      cwd: here.path,
      env: { AUTH_TOKENS: TOKEN },
      program: mounting(overlay),
      args: ["--database", "data/plants.db"],
    });

    expect((await post(server.url)).status).toBe(200);
  },
);
