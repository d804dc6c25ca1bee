import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";

import packageJson from "../../package.json" with { type: "json" };
import { emptyDirectory, ROOT } from "./program.ts";

/**
 * Packs the package and installs the tarball in a directory of its own, with the dependencies of the
 * lock file and nothing else. That is what a project of somebody else has.
 */
export async function installPackage() {
  using stack = new DisposableStack();
  const directory = stack.use(emptyDirectory());
  await packInto(directory.path);
  await installDependencies(directory.path);
  await unpack(directory.path);
  await Bun.write(join(directory.path, "package.json"), '{ "type": "module" }');
  stack.move();

  return directory;
}

const TARBALL = `${packageJson.name}-${packageJson.version}.tgz`;

/**
 * Packs into a directory, from a copy: packing builds, and two tests that pack at once must not
 * share what is built.
 */
export async function packInto(directory: string): Promise<string> {
  using checkout = emptyDirectory();
  const built = ["src", "drizzle", "README.md", "LICENSE", "package.json", "tsconfig.json"];

  for (const name of [
    ...built,
    ...packageJson.files.filter((file) => /\.(?:md|svg)$/.test(file)),
  ]) {
    cpSync(join(ROOT, name), join(checkout.path, name), { recursive: true });
  }

  symlinkSync(join(ROOT, "node_modules"), join(checkout.path, "node_modules"));
  await Bun.$`${process.execPath} pm pack --quiet --destination ${directory}`
    .cwd(checkout.path)
    .quiet();

  return join(directory, TARBALL);
}

const MANIFEST = ["package.json", "bun.lock", "bunfig.toml"];

/** From Bun's cache, where the installation of this checkout has left them. */
async function installDependencies(directory: string): Promise<void> {
  for (const name of MANIFEST) copyFileSync(join(ROOT, name), join(directory, name));
  const flags = ["--production", "--frozen-lockfile", "--ignore-scripts"];
  await Bun.$`${process.execPath} install ${flags}`.cwd(directory).quiet();
  for (const name of MANIFEST) rmSync(join(directory, name));
}

/** As a package manager does: its files, and a link to each of its programs. */
async function unpack(directory: string): Promise<void> {
  const modules = join(directory, "node_modules");
  const home = join(modules, packageJson.name);
  await new Bun.Archive(await Bun.file(join(directory, TARBALL)).bytes()).extract(modules);
  renameSync(join(modules, "package"), home);
  mkdirSync(join(modules, ".bin"), { recursive: true });

  for (const [name, file] of Object.entries(packageJson.bin)) {
    chmodSync(join(home, file), 0o755);
    symlinkSync(join(home, file), join(modules, ".bin", name));
  }
}
