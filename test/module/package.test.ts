import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

import elysiaJson from "../../node_modules/elysia/package.json" with { type: "json" };
import packageJson from "../../package.json" with { type: "json" };
import { DOCS_FILES } from "../../src/http/docs.ts";
import { testApp } from "../support/app.ts";
import { startBrokenGateway } from "../support/broken_gateway.ts";
import { post, TOKEN } from "../support/client.ts";
import { skipsTmpfs, smallDisk } from "../support/disks.ts";
import { guideProject } from "../support/guide_project.ts";
import { blocks, guides, section } from "../support/guides.ts";
import { skipped } from "../support/missing.ts";
import {
  COMPILERS,
  MODULE_RUNTIMES,
  type ModuleRuntime,
  NEWEST_COMPILER,
  skipsRuntimes,
} from "../support/module_runtimes.ts";
import {
  fern,
  ivy,
  jsonOf,
  membersOf,
  membersWith,
  moss,
  returned,
  TEXT,
} from "../support/plants.ts";
import {
  emptyDirectory,
  ROOT,
  runToEnd,
  startServer,
  TEST_TIMEOUT_MS,
} from "../support/program.ts";
import { ENTRIES, publicExports } from "./public_exports.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

let project: Awaited<ReturnType<typeof guideProject>>;
beforeAll(async () => {
  project = await guideProject();
});
afterAll(() => project[Symbol.dispose]());

const [app = "", ...others] = blocks("Embed the module", "ts");
const serveOn = ({ kind }: ModuleRuntime) =>
  others.find((code) => code.toLowerCase().startsWith(`// ${kind}`)) ?? "";
const [client = ""] = blocks("Retries", "ts");
const [contract = ""] = blocks("Test your store", "ts");
/** The line of the guide's example that differs with the runtime. */
const IMPORT_TEST = 'import { test } from "node:test";';
const [inFile = ""] = blocks("Keep plants in a file", "ts");
const [ownStore = ""] = blocks("A store of your own", "ts");
const skipsMounts = skipsTmpfs();
const skipsOtherUser =
  process.getuid?.() !== 0 && skipped("files of another user: giving files away needs root");

/** Mounts a file at its own path, as a container mounts one file, until the end of the scope. */
function mountedAlone(file: string): Disposable {
  expect(Bun.spawnSync(["mount", "--bind", file, file]).exitCode).toBe(0);
  return { [Symbol.dispose]: () => void Bun.spawnSync(["umount", "--lazy", file]) };
}

test("the package has the module and the program as JavaScript, and the guides, but no source and no tests", () => {
  const files = readdirSync(join(project.path, "node_modules/plant-store"), {
    recursive: true,
  }).map(String);
  const entries = ENTRIES.flatMap(({ file }) =>
    ["js", "js.map", "d.ts"].map((type) => `dist/module/${file.replace(/ts$/, type)}`),
  );

  expect(files).toContainValues([
    ...entries,
    "dist/program/main.js",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
  ]);

  const pages = [...guides.map(({ path }) => path), "CHANGELOG.md", "LICENSE", "package.json"];
  expect(files).toContainValues(pages);

  const others = files.filter(
    (file) => /\.\w+$/.test(file) && !file.startsWith("dist/") && !pages.includes(file),
  );
  // Pictures, manifests and the like, which the pages link.
  const linked = guides.map(({ text }) => text).join("\n");
  expect(others.filter((file) => !linked.includes(basename(file)))).toEqual([]);
  expect(
    files.filter((file) => file.startsWith("dist/")).map((file) => file.split("/")[1]),
  ).not.toContain("test");
  expect(packageJson).not.toHaveProperty("private");
});

test("the package has the licenses of what is bundled into it", async () => {
  const text = await Bun.file(
    join(project.path, "node_modules/plant-store/dist/LICENSES.txt"),
  ).text();
  expect(await runToEnd({ args: ["licenses"] })).toEqual({ exitCode: 0, stdout: text, stderr: "" });
});

test("the source maps of the module have the sources", async () => {
  const sources = await mappedSources();
  const apps = sources.filter(({ path }) => path.endsWith("src/http/app.ts"));
  const app = await Bun.file(join(ROOT, "src/http/app.ts")).text();
  expect(apps.map(({ text }) => text)).toEqual([app]);
});

test("the module contains one other package, and nothing of what generates the document", async () => {
  const sources = await mappedSources();
  const names = sources.flatMap(
    ({ path }) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? [],
  );
  expect([...new Set(names)]).toEqual(["@elysiajs/bearer"]);
});

/** What the module is built from, by its source maps. */
async function mappedSources() {
  const maps = await builtFiles(/\.js\.map$/);
  return maps.flatMap((file) => {
    const { sources, sourcesContent } = JSON.parse(file.text) as Record<string, string[]>;
    return sources?.map((path, index) => ({ path, text: sourcesContent?.[index] })) ?? [];
  });
}

test("the dependencies are what the module imports, and the peers that Elysia asks for", async () => {
  const files = await builtFiles(/\.(?:js|d\.ts)$/);
  const code = files.map(({ text }) => text.replace(/^ *\*.*$/gm, "")).join("\n");
  const imported = Array.from(
    code.matchAll(/(?:\bfrom |\bimport\()"((?:@[^"/]+\/)?[^".:/][^":/]*)[^":]*"/g),
    ([, name = ""]) => name,
  );
  const { peerDependencies, peerDependenciesMeta } = elysiaJson;
  const peers = Object.keys(peerDependencies).filter((name) => !(name in peerDependenciesMeta));

  expect(Object.keys(packageJson.dependencies).toSorted()).toEqual(
    [...new Set([...imported, ...peers])].toSorted(),
  );
});

test("bunx plant-store runs from the packed tarball, and finds there all that it needs", async () => {
  const bunx = [process.execPath, "x", "--no-install", "plant-store"];
  const version = await runToEnd({ program: bunx, cwd: project.path, args: ["--version"] });
  expect(version).toEqual({ exitCode: 0, stdout: `${packageJson.version}\n`, stderr: "" });

  // Without bunx in between, which would be killed in the place of the server.
  const program = [process.execPath, join(project.path, "node_modules/.bin/plant-store")];
  using directory = emptyDirectory();
  const options = { program, cwd: directory.path, env: { AUTH_TOKENS: TOKEN } };
  await using server = await startServer(options);
  const response = await post(server.url);

  expect({ status: response.status, body: await response.json() }).toEqual({
    status: 200,
    body: returned(fern()),
  });

  await server.stderr.until(/"Integrity check passed"/);
  for (const page of ["swagger", "swagger/json", ...DOCS_FILES.map((file) => `swagger/${file}`)]) {
    expect((await fetch(`${server.url}/${page}`)).status).toBe(200);
  }

  expect(await runToEnd({ ...options, args: ["backup", "copy.db"] })).toMatchObject({
    exitCode: 0,
  });
  expect(
    await runToEnd({ ...options, args: ["check", "--database", "file:copy.db"] }),
  ).toMatchObject({ exitCode: 0 });
});

test("the build uses nothing of Bun, and of Node only what all runtimes have", async () => {
  const text = (await builtFiles(/\.js$/)).map((file) => file.text).join("\n");
  const imported = Array.from(
    text.matchAll(/^(?:import|export)\b[^;]*?\bfrom "([^".][^"]*)"/gm),
    ([, name = ""]) => name,
  );
  const builtIn = imported.filter((name) => name.includes(":"));

  expect([...new Set(builtIn)].toSorted()).toEqual([
    "node:assert/strict",
    "node:child_process",
    "node:crypto",
    "node:fs",
    "node:path",
  ]);

  // Who runs this decides whose files are trusted; where that cannot be known, nothing does.
  expect(text.match(/\b(?:Bun|process)[.?[]\w+/g)?.toSorted()).toEqual([
    "process.getBuiltinModule",
    "process.getuid",
  ]);
});

test("the types that the module's declarations name are also exported", async () => {
  const exported = new Set((await publicExports()).map(({ name }) => name));
  const files = await builtFiles(/\.d\.ts$/);

  const hidden = files.flatMap(({ file, text }) => {
    const statements = text.replace(/\/\*[^]*?\*\//g, "").split(/^(?=export |declare |import )/m);
    const own = new Set(statements.flatMap(namesDeclared));

    return statements
      .filter(
        (code) =>
          !code.startsWith("import ") && namesDeclared(code).some((name) => exported.has(name)),
      )
      .flatMap((code) => code.replace(/"[^"\n]*"|'[^'\n]*'/g, "").match(/[A-Za-z_$][\w$]*/g) ?? [])
      .filter((name) => own.has(name) && !exported.has(name))
      .map((name) => `${file}: ${name}`);
  });

  expect(hidden).toEqual([]);
  expect(files.length).toBeGreaterThan(30);
});

/** What a statement declares, or imports from another file of the package. */
function namesDeclared(statement: string): string[] {
  const [, imported] = /^import (?:type )?\{([^}]*)\} from "\./.exec(statement) ?? [];
  if (imported !== undefined)
    return imported.split(",").map((name) => name.replace(/\btype\b/, "").trim());
  const [, name] =
    /^(?:export )?(?:declare )?(?:function|const|class|interface|type) ([\w$]+)/.exec(statement) ??
    [];
  return name === undefined ? [] : [name];
}

/** The files of the module as it is built whose names match. */
function builtFiles(pattern: RegExp) {
  const built = join(project.path, "node_modules/plant-store/dist/module");
  const files = readdirSync(built, { recursive: true, encoding: "utf8" }).filter((file) =>
    pattern.test(file),
  );
  return Promise.all(
    files.map(async (file) => ({ file, text: await Bun.file(join(built, file)).text() })),
  );
}

describe.skipIf(skipsRuntimes("the packed module on Bun, Deno and Node"))(
  "the packed module",
  () => {
    test.each(MODULE_RUNTIMES)("$name serves the README's program", async (runtime) => {
      await using server = await project.serve(runtime, `${app}\n${serveOn(runtime)}`);
      const response = await post(server.url, undefined, { token: "a-token-of-the-greenhouse" });
      // Another address of this machine, which a program on all interfaces has.
      await expect(fetch(server.url.replace("127.0.0.1", "127.0.0.2"))).rejects.toThrow();
      expect({ status: response.status, body: await response.json() }).toEqual({
        status: 200,
        body: returned(fern()),
      });
    });

    test.each(MODULE_RUNTIMES)(
      "$name stores a plant by the API guide's client",
      async (runtime) => {
        using server = Bun.serve({ port: 0, fetch: testApp().fetch });
        using gateway = startBrokenGateway(server.url.origin);

        // A signal that is aborted in some weeks must not keep the program alive so long.
        const program = `${client}
        const signal = AbortSignal.timeout(2 ** 31 - 1);
        console.log(await storeMoss("${gateway.url}", "${TOKEN}", signal));`;
        await project.write("client.ts", program);

        expect(await project.run([...runtime.run, "client.ts"])).toEqual({
          exitCode: 0,
          output: "200\n",
        });
      },
    );

    test.each(MODULE_RUNTIMES)(
      "$name tests a store by the README's example, with its own test runner",
      async (runtime) => {
        expect(contract).toContain(IMPORT_TEST);
        expect(`${IMPORT_TEST} ${section("Test your store")}`).toContain(runtime.importTest);
        const { exitCode, output } = await testStore(runtime, ownStore);
        expect({ exitCode, output }).toMatchObject({ exitCode: 0 });
        expect(output).toContain("PlantStore.add() keeps every int64 exactly");
      },
    );

    test.each(MODULE_RUNTIMES)("$name finds a store that breaks its contract", async (runtime) => {
      const broken = ownStore.replace('"conflict"', '"present"');
      expect(broken).not.toBe(ownStore);
      const { exitCode, output } = await testStore(runtime, broken);
      expect(exitCode).toBe(1);
      expect(output).toContain("AssertionError");
    });

    test.each(MODULE_RUNTIMES)(
      "$name serves the very document that the executable generates",
      async (runtime) => {
        const exported = (await publicExports()).find(({ name }) => name === "DOCS_FILES");
        const [docsFiles = ""] = exported?.examples ?? [];
        const withDocs = app.replace("createApp({", "createApp({ docsFiles,");
        const get = 'await app.fetch(new Request("http://localhost/swagger/json"))';

        await project.write(
          "document.ts",
          `${docsFiles}\n${withDocs}\nconsole.log(await (${get}).text());`,
        );

        const flags = runtime.kind === "deno" ? ["--allow-read"] : [];
        const { exitCode, output } = await project.run([...runtime.run, ...flags, "document.ts"]);

        await using server = await startServer();
        const generated = await (await fetch(`${server.url}/swagger/json`)).text();
        expect({ exitCode, output }).toEqual({ exitCode: 0, output: `${generated}\n` });
      },
    );

    test.each(MODULE_RUNTIMES)("$name prints an error by its own name", async (runtime) => {
      const program = `
        import { PlantStoreError } from "plant-store";
        console.log(PlantStoreError.name, String(new PlantStoreError("id_taken")));
        console.log(new PlantStoreError("internal"));`;
      await project.write("printed.ts", program);

      const { exitCode, output } = await project.run([...runtime.run, "printed.ts"]);
      const printed = output.match(/\w*Error\d*\b/g) ?? [];
      expect({ exitCode, names: [...new Set(printed)] }).toEqual({
        exitCode: 0,
        names: ["PlantStoreError"],
      });
    });

    test.each(MODULE_RUNTIMES)(
      "$name keeps plants in a file of SQLite, and tests that with its own test runner",
      async ({ name, test, importTest }) => {
        const source = await Bun.file(join(ROOT, "test/runtimes/sqlite_store.ts")).text();
        const program = source
          .replace(IMPORT_TEST, importTest)
          .replace("../../src/database/contract/mod.ts", "plant-store/testing")
          .replace("../../src/database/sqlite/mod.ts", "plant-store/sqlite")
          .replace("../support/plants.ts", join(ROOT, "test/support/plants.ts"));
        await project.write("sqlite_store.test.ts", program);

        const disk = join(project.path, `disk of ${name}`);
        mkdirSync(disk);
        using stack = new DisposableStack();
        const mounted = `${disk}.db`;
        writeFileSync(mounted, "");
        if (!skipsMounts) {
          stack.use(smallDisk(disk, "size=2m"));
          stack.use(mountedAlone(mounted));
        }

        const env = {
          ...(!skipsMounts && { SMALL_DISK: disk, MOUNTED_FILE: mounted }),
          ...(!skipsOtherUser && { OTHER_USER: "65534" }),
        };
        const { exitCode, output } = await project.run([...test, "sqlite_store.test.ts"], env);
        expect({ exitCode, output }).toMatchObject({ exitCode: 0 });
        expect(output).toContain("PlantStore.add() keeps every int64 exactly");
      },
    );

    test.each(MODULE_RUNTIMES)(
      "$name shares a file with the executable: its commands work beside the store, a server comes after it",
      async (runtime) => {
        using directory = emptyDirectory();
        const command = (...args: string[]) =>
          runToEnd({ cwd: directory.path, args: [...args, "--database", "file:plants.db"] });
        const plant = moss({ id: 2n });
        const lines = `${jsonOf(ivy())}\n${jsonOf(plant)}\n`;

        await Bun.write(directory.at("ivy.ndjson"), lines.split("\n")[0] ?? "");
        expect(await command("import", "ivy.ndjson")).toMatchObject({ exitCode: 0 });

        {
          const program = `${inFile}\n${serveOn(runtime)}`;
          const permissions = runtime.kind === "deno" ? ["--allow-read", "--allow-write"] : [];
          await using server = await project.serve(
            { ...runtime, run: [...runtime.run, ...permissions] },
            program.replace("plants.db", directory.at("plants.db")),
          );
          const options = { token: "a-token-of-the-greenhouse" };
          const other = await post(server.url, undefined, options);
          const response = await post(server.url, plant, options);
          expect([other.status, response.status]).toEqual([409, 200]);

          expect(await command("export")).toEqual({
            exitCode: 0,
            stdout: lines,
            stderr: expect.any(String),
          });
          expect(await command("check")).toMatchObject({ exitCode: 0 });
          expect(await command("backup", "copy.db")).toMatchObject({ exitCode: 0 });
        }

        const env = { AUTH_TOKENS: TOKEN };
        await using server = await startServer({ cwd: directory.path, env });
        const statuses = [plant, fern({ id: 2n })].map(
          async (plant) => (await post(server.url, plant)).status,
        );
        expect(await Promise.all(statuses)).toEqual([200, 409]);
      },
    );

    test.each(MODULE_RUNTIMES)("$name runs the example of every export", async (runtime) => {
      const files = await writeExamples();
      const examples = files.filter((file) => !file.endsWith(".test.ts"));
      const imports = examples.map((file) => `await import("./${file}");`);

      await project.write("all.ts", [...imports, `console.log(${examples.length});`].join("\n"));
      // One example reads the files of Swagger UI, another stores plants in a file.
      const flags = runtime.name === "Deno" ? ["--allow-read", "--allow-write"] : [];

      // Node 22 calls its SQLite an experiment.
      const env = { NODE_OPTIONS: "--disable-warning=ExperimentalWarning" };
      expect(await project.run([...runtime.run, ...flags, "all.ts"], env)).toEqual({
        exitCode: 0,
        output: expect.stringMatching(
          new RegExp(`^(?:Created an empty database: .+\n)?${examples.length}\n(?:Created .+\n)?$`),
        ),
      });

      const tests = files.filter((file) => file.endsWith(".test.ts"));
      expect(await project.run([...runtime.test, ...tests])).toMatchObject({ exitCode: 0 });
      expect(files.length).toBeGreaterThan(20);
    });

    test.each(COMPILERS)(
      "TypeScript $version checks a strict project that uses it",
      async ({ command }) => {
        const wrong = [
          "// @ts-expect-error A store takes batches, not single plants.",
          "createApp({ plants: store, ready: async () => {}, authenticate: staticTokens([]) });",
          "// @ts-expect-error A token is a string.",
          "staticTokens([7]);",
        ];
        const stores = ["in_file.ts", "own_store.ts"];
        const guide = ["typed.ts", "typed.test.ts", ...stores, "client.ts"];
        const files = [...guide, ...(await writeExamples())];

        await project.write("typed.ts", [app, ...wrong, EDEN].join("\n"));
        await project.write("typed.test.ts", contract);
        await project.write("in_file.ts", inFile);
        await project.write("own_store.ts", ownStore);
        await project.write("client.ts", client);

        const options = {
          module: "nodenext",
          skipLibCheck: true,
          allowImportingTsExtensions: true,
        };
        expect(await project.compile(command, files, options)).toEqual({ exitCode: 0, errors: [] });
      },
    );

    test.each(NEWEST_COMPILER)(
      "without skipLibCheck only Elysia's own declarations have errors",
      async ({ command }) => {
        const program = `${app}\nexport const fetch = app.fetch;\nexport * from "plant-store/sqlite";\nexport * from "plant-store/testing";\n`;
        await project.write("typed.ts", program);
        const options = { module: "nodenext", skipLibCheck: false };
        const { errors } = await project.compile(command, ["typed.ts"], options);
        expect(errors).not.toBeEmpty();
        expect(errors.filter((error) => !error.startsWith("node_modules/elysia/"))).toEqual([]);
      },
    );

    test.each(["plant-store", "plant-store/sqlite"])(
      "%s says in one line that a runtime is too old for it",
      async (specifier) => {
        const [node = ""] = MODULE_RUNTIMES.find(({ name }) => name === "Node 26")?.run ?? [];
        // Node 20 has none.
        const older = `delete Promise.withResolvers;
          await import("${specifier}").catch(({ message }) => console.log(message));`;
        const flags = ["--no-experimental-sqlite", "--input-type=module", "--eval"];
        expect(await project.run([node, ...flags, older])).toEqual({
          exitCode: 0,
          output:
            "Cannot use plant-store here: it needs Node 22.3, Deno 2.2, Bun 1.1.45 or newer\n",
        });
      },
    );

    test.each([
      ["has no node:sqlite", ""],
      // As Bun 1.1.
      ["cannot even be asked for it", "delete process.getBuiltinModule;"],
    ])("plant-store/sqlite says in one line that a runtime %s", async (_, before) => {
      const [node = ""] = MODULE_RUNTIMES.find(({ name }) => name === "Node 22")?.run ?? [];
      const program = `${before}
        await import("plant-store/sqlite").catch(({ message }) => console.log(message));`;
      const flags = ["--no-experimental-sqlite", "--input-type=module", "--eval"];
      expect(await project.run([node, ...flags, program])).toEqual({
        exitCode: 0,
        output:
          "Cannot use plant-store/sqlite here: there is no node:sqlite; it needs Node 22.13, Deno 2.2.3, Bun 1.4 or newer\n",
      });
    });

    test("Node takes the package by require()", async () => {
      const [node = ""] = MODULE_RUNTIMES.find(({ name }) => name === "Node 22")?.run ?? [];
      const program = 'console.log(typeof require("plant-store").createApp);';
      expect(await project.run([node, "--input-type=commonjs", "--eval", program])).toEqual({
        exitCode: 0,
        output: "function\n",
      });
    });

    test("Deno loads the package by an npm: specifier", async () => {
      const program = `${app.replace('"plant-store"', `"npm:${packageJson.name}"`)}
console.log((await app.fetch(new Request("http://localhost/readyz"))).status);
`;
      await Bun.write(join(project.path, "deno.ts"), program);
      const deno = MODULE_RUNTIMES.find(({ name }) => name === "Deno")?.run ?? [];
      expect(await project.run([...deno, "deno.ts"])).toEqual({ exitCode: 0, output: "200\n" });
    });
  },
);

/** Tests a store by the README's example, with the runtime's own test runner. */
async function testStore({ test, importTest }: ModuleRuntime, store: string) {
  await project.write("own_store.ts", store);
  await project.write("own_store.test.ts", contract.replace(IMPORT_TEST, importTest));
  return project.run([...test, "own_store.test.ts"]);
}

/**
 * Writes each example into a file of its own, and returns their names. Those that declare tests are
 * `.test.ts`.
 */
async function writeExamples(): Promise<string[]> {
  const examples = (await publicExports()).flatMap(({ name, examples }) =>
    examples.map((code) => ({ name, code })),
  );
  return Promise.all(
    examples.map(async ({ name: exported, code }, index) => {
      const name = `example_${index + 1}_${exported}.${code.includes('from "node:test"') ? "test.ts" : "ts"}`;
      await project.write(name, code);
      return name;
    }),
  );
}

/**
 * A client whose types are those of the app: were one of them `any`, nothing here would be an
 * error.
 */
const EDEN = `
import { treaty } from "@elysiajs/eden";
const { plants: client } = treaty<typeof app>("http://localhost:3000");
const { data, error } = await client.post({ id: 1, ${membersOf(fern())} });
export const text: string | undefined = data?.${TEXT};
if (error?.status === 409) console.log(error.value.message.length);
// @ts-expect-error A plant has no such field.
console.log(data?.noSuchField);
// @ts-expect-error A text is not a number.
await client.post({ id: 1, ${membersWith("7")} });
// @ts-expect-error There is no response with this status.
if (error?.status === 418) console.log(error.value);
`;
