import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";

import packageJson from "../package.json" with { type: "json" };
import { namesOf, sources, SRC } from "./support/sources.ts";

/** The rooms of databases. */
const DATABASES = [
  ...new Set(sources.flatMap(({ path }) => /^database\/(?!contract)\w+(?=\/)/.exec(path) ?? [])),
];

/** The rooms that a database may import. */
const BELOW_DATABASES = [
  "errors",
  "async",
  "plant",
  "auth",
  "group_commit",
  "database/database",
  "database/adapter",
  "database/additions",
];

/**
 * Each room, and the rooms whose files its own may import besides those in the room itself. In
 * `database/`, each folder and each file is a room.
 */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  errors: [],
  tls_failures: [],
  build: [],
  recipes: [],
  async: [],
  plant: ["errors"],
  auth: ["errors", "async"],
  group_commit: ["errors", "async", "plant"],
  "database/database": ["plant", "auth", "group_commit"],
  "database/additions": ["database/database", "database/adapter"],
  "database/memory": ["plant", "auth", "group_commit", "database/database"],
  "database/contract": ["async", "plant", "auth", "group_commit", "database/database"],
  "database/adapter": ["auth", "group_commit", "database/database"],
  "database/sqlite": BELOW_DATABASES,
  "database/postgres": [...BELOW_DATABASES, "tls_failures"],
  "database/citus": [...BELOW_DATABASES, "database/postgres"],
  "database/databases": ["database/adapter", ...DATABASES],
  "database/refusals": ["errors", "database/database"],
  http: ["errors", "async", "plant", "auth", "group_commit"],
  telemetry: ["errors", "async", "plant", "database/adapter", "group_commit", "http"],
  settings: ["errors", "auth", "database/adapter", "database/databases"],
  server: [
    "errors",
    "tls_failures",
    "build",
    "async",
    "auth",
    "database/adapter",
    "database/refusals",
    "group_commit",
    "http",
    "telemetry",
    "settings",
  ],
  commands: [
    "errors",
    "build",
    "async",
    "plant",
    "auth",
    "group_commit",
    "database/database",
    "database/adapter",
    "database/databases",
    "database/refusals",
    "http",
    "telemetry",
    "settings",
    "server",
  ],
  mod: ["errors", "plant", "auth", "database/memory", "group_commit", "http"],
  main: ["commands", "async"],
  embedded: [],
};

function roomOf(path: string): string {
  return /^(?:database\/)?\w+/.exec(path)?.[0] ?? "";
}

test("imports point one way: main, commands, server, http, the ports, plant, errors", () => {
  const backwards = sources.flatMap(({ path, imports }) => {
    const allowed = [roomOf(path), ...(MAY_IMPORT[roomOf(path)] ?? [])];
    const ours = imports.filter(
      (target) => target.endsWith(".ts") && !allowed.includes(roomOf(target)),
    );
    return ours.map((target) => `${path} imports ${target}`);
  });

  expect(backwards).toEqual([]);
  expect(new Set(sources.map(({ path }) => roomOf(path)))).toEqual(
    new Set(Object.keys(MAY_IMPORT)),
  );
});

test("of each database, the others may import its adapter only, and only where all are listed", () => {
  const entries = sources
    .filter(({ path }) => !DATABASES.includes(roomOf(path)))
    .flatMap(({ path, imports }) => imports.map((target) => [path, target] as const))
    .filter(([, target]) => DATABASES.includes(roomOf(target)));

  const adapters = DATABASES.map((room) => `${room}/${basename(room)}_adapter.ts`);
  expect(entries.toSorted()).toEqual(
    adapters.map((adapter) => ["database/databases.ts", adapter] as const).toSorted(),
  );
});

/** Two files that import from each other are one file, or share something that belongs below both. */
test("no file imports itself by way of others, for a type or not", () => {
  const circles = sources.filter(({ path, imports }) =>
    reachedFrom(imports).some((reached) => reached.path === path),
  );
  expect(circles.map(({ path }) => path).toSorted()).toEqual([]);
});

/** What `bun run check` compiles without the types of Bun and Node. */
test("the core type-checks without a runtime", async () => {
  const { include, exclude } = await Bun.file(join(SRC, "tsconfig.core.json")).json();
  expect(include).toEqual([
    "errors.ts",
    "plant",
    "async",
    "auth",
    "group_commit",
    "http",
    "database/*.ts",
  ]);

  expect(exclude).toEqual(["database/databases.ts"]);
  expect(packageJson.scripts.check).toContain("-p src/tsconfig.core.json");
});

/** The module must run wherever it is imported, with no database and no runtime of its own. */
test("what the module pulls in runs on Bun, Deno and Node", () => {
  const reached = reachedFrom(["mod.ts", "http/client.ts", "database/contract/mod.ts"]);
  const rooms = new Set(reached.map(({ path }) => roomOf(path)));
  const app = ["async", "auth", "errors", "group_commit", "http", "plant"];
  const ports = ["database/contract", "database/database", "database/memory"];
  expect([...rooms].toSorted()).toEqual([...app, ...ports, "mod"].toSorted());

  const builtIn = reached
    .flatMap(({ imports }) => imports)
    .filter((target) => /^(?:bun|node):/.test(target));
  expect([...new Set(builtIn)].toSorted()).toEqual(["node:assert/strict", "node:crypto"]);
  expect(
    reached.filter(({ text }) => /\bBun\b/.test(namesOf(text))).map(({ path }) => path),
  ).toEqual([]);
});

/** The store in a file is the executable's, on another driver. */
test("the module's store in a file loads nothing of Bun and no package", () => {
  const loaded = new Set(["database/sqlite/mod.ts"]);
  for (const path of loaded) for (const load of sourceOf(path)?.loads ?? []) loaded.add(load.path);

  const ours = [...loaded].filter((path) => path.endsWith(".ts"));
  expect(ours.length).toBeGreaterThan(5);
  expect(
    [...loaded].filter((path) => !path.endsWith(".ts") && !/^node:|drizzle\//.test(path)),
  ).toEqual([]);
  expect(ours.filter((path) => /\bBun\b/.test(namesOf(sourceOf(path)?.text ?? "")))).toEqual([]);
});

function sourceOf(path: string) {
  return sources.find((source) => source.path === path);
}

/** These files, and all that they import, directly or not. */
function reachedFrom(paths: readonly string[]) {
  const reached = new Set(paths);
  // A set that grows while it is iterated is iterated to its new end.
  for (const path of reached) {
    for (const target of sourceOf(path)?.imports ?? []) reached.add(target);
  }
  return sources.filter(({ path }) => reached.has(path));
}

// The linter keeps the web framework in http.
test.each(["plant/plant.ts", "errors.ts", "http/client.ts"])("%s imports nothing", (path) => {
  expect(sourceOf(path)?.imports).toEqual([]);
});

test("only main.ts reads environment variables", () => {
  const readers = sources
    .filter(({ text }) => /\bprocess\.env\b|\bBun\.env\b/.test(namesOf(text)))
    .map(({ path }) => path);
  expect(readers).toEqual(["main.ts"]);
});

test.each([
  ["@opentelemetry/", "telemetry/tracing.ts"],
  ["fast-content-type-parse", "http/body.ts"],
])("of %s only one file knows: %s", (package_, knowing) => {
  const importers = sources.filter(({ imports }) =>
    imports.some((target) => target.startsWith(package_)),
  );
  expect(importers.map(({ path }) => path)).toEqual([knowing]);
});

test.each([
  ["telemetry/tracing.ts", "server/service.ts"],
  ["@elysiajs/swagger", "http/openapi.ts"],
])("%s is large: one file loads it, when it is used", (large, user) => {
  const loads = sources.flatMap(({ path, loads }) =>
    loads.filter((load) => load.path === large).map(({ kind }) => [path, kind]),
  );
  expect(loads).toEqual([[user, "dynamic-import"]]);
});

test("the program loads a command, a database and the framework only where they are used: a start waits for none of it", () => {
  const loaded = new Set(["main.ts", "commands/serve.ts"]);
  for (const path of loaded) {
    const early = sourceOf(path)?.loads.filter(({ kind }) => kind === "import-statement") ?? [];
    for (const load of early) loaded.add(load.path);
  }

  const late = /^(?:elysia|@elysiajs\/.*|@sinclair\/typebox|drizzle-orm.*|http\/app\.ts)$/;
  expect([...loaded].filter((target) => late.test(target))).toEqual([]);
  expect(loaded).toContain("database/sqlite/sqlite_adapter.ts");
});

/**
 * The executable bundles all that it imports: what the module makes its users install is in
 * `package.test.ts`.
 */
test("what the source imports is listed, and is a dependency only if the module imports it", () => {
  const { dependencies, devDependencies } = packageJson;
  const ofProgram = packagesOf(sources);
  expect(
    [...ofProgram].filter((name) => !(name in dependencies) && !(name in devDependencies)),
  ).toEqual([]);

  const ofModule = packagesOf(
    reachedFrom(["mod.ts", "http/client.ts", "database/contract/mod.ts"]),
  );
  expect(
    Object.keys(dependencies).filter((name) => ofProgram.has(name) && !ofModule.has(name)),
  ).toEqual([]);
});

/** The packages that these files import, for the compiler only or not. */
function packagesOf(files: typeof sources): Set<string> {
  const names = files
    .flatMap(({ imports }) => imports)
    .filter((target) => !/^(?:bun|node):|^\.|\.ts$/.test(target));
  return new Set(names.map((name) => name.split("/", name.startsWith("@") ? 2 : 1).join("/")));
}

test("each Worker is built into the executable and into the package, and found from there", () => {
  const workers = sources.flatMap(({ path, text }) =>
    Array.from(text.matchAll(/new URL\("([^"]*_worker\.js)"/g), ([, url = ""]) =>
      join("src", dirname(path), url),
    ),
  );
  const { build, "build:program": buildProgram } = packageJson.scripts;

  for (const script of [build, buildProgram]) {
    const entries =
      script.match(/src\/[\w/]+\.ts/g)?.filter((entry) => entry !== "src/main.ts") ?? [];
    // Bun finds the source of a `.js` that is not there; beside a bundle there is nothing else.
    expect(workers.toSorted()).toEqual(
      entries.map((entry) => entry.replace(/\.ts$/, ".js")).toSorted(),
    );
  }
});

test.each(["mod.ts", "database/contract/mod.ts", "database/sqlite/mod.ts"])(
  "%s only re-exports, by name",
  (path) => {
    const code = sourceOf(path)?.text.replace(/\/\*[\s\S]*?\*\//g, "") ?? "";
    const statements = code.split(";").map((statement) => statement.trim());
    const isReExport = /^(?:export (?:type )?\{[^}]+\} from "\.\/[\w./]+")?$/;
    expect(statements.filter((statement) => !isReExport.test(statement))).toEqual([]);
    expect(statements.length).toBeGreaterThan(1);
  },
);

const map = await Bun.file(join(SRC, "README.md")).text();
const named = Array.from(map.matchAll(/`([\w./]+(?:\.ts|\/))`/g), ([, path = ""]) => path);

test("every file and folder that the map of the code names exists", () => {
  expect(named.filter((path) => !existsSync(join(SRC, path)))).toEqual([]);
  expect(named.length).toBeGreaterThan(30);
});

test("every room is on the map of the code", () => {
  const rooms = new Set(
    sources.map(({ path }) => `${dirname(path)}/`).filter((room) => room !== "./"),
  );
  expect([...rooms].filter((room) => !named.includes(room))).toEqual([]);
});

/** An arrow is a path of one step; a room may import what a path leads to. */
test("the picture of the map implies every import that is allowed, and has no other arrow", () => {
  const picture = /^```mermaid\nflowchart.*?^```/ms.exec(map)?.[0] ?? "";
  const roomsOf = (text: string) =>
    text.split("&").map((room) => room.trim().replace(/\/$|\.ts$/, ""));
  const arrows = picture.split("\n").flatMap((line) => {
    const steps = line.split("-->").map(roomsOf);
    return steps
      .slice(1)
      .flatMap((targets, index) =>
        (steps[index] ?? []).flatMap((from) => targets.map((to) => [from, to] as const)),
      );
  });

  const refused = arrows.filter(([from, to]) => MAY_IMPORT[from]?.includes(to) !== true);
  expect(refused).toEqual([]);

  const missing = Object.entries(MAY_IMPORT)
    .filter(([room]) => room !== "mod")
    .flatMap(([room, targets]) => {
      const implied = new Set([room]);
      for (const from of implied)
        for (const [source, to] of arrows) if (source === from) implied.add(to);
      return targets
        .filter((target) => !implied.has(target))
        .map((target) => `${room} → ${target}`);
    });
  expect(missing).toEqual([]);
});

test("every class of errors is in the table of the map", () => {
  const classes = sources.flatMap(({ text }) =>
    Array.from(
      text.matchAll(/\bclass (\w+) extends \w*(?:Error|Failure)\b/g),
      ([, name = ""]) => name,
    ),
  );
  const rows = /^## Errors$.*?^## /ms.exec(map)?.[0].match(/^\| `[^|]*/gm) ?? [];
  const listed = rows.join().match(/\w+/g) ?? [];
  expect(listed.toSorted()).toEqual(classes.toSorted());
});
