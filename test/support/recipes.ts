/** The patches of the recipes, in the order of the page. */
export const PATCHES = ["read.patch", "list.patch", "limit.patch", "field.patch"];

/** One change of a patch, as a patch. */
export interface Hunk {
  /** From the repository's root. */
  readonly file: string;
  readonly patch: string;
}

/** The changes of a patch, one by one. */
export function hunksOf(patch: string): Hunk[] {
  return patch.split(/^(?=diff --git )/m).flatMap((part) => {
    const [head = "", ...hunks] = part.split(/^(?=@@ )/m);
    const [, file = ""] = /^\+\+\+ b\/(.*)$/m.exec(head) ?? [];
    return hunks.map((hunk) => ({ file, patch: head + hunk }));
  });
}

/** The test files that a patch adds or changes; with the contract of databases, those that run it. */
export function testsOf(patch: string): string[] {
  const files = [...new Set(hunksOf(patch).map(({ file }) => file))];
  const tests = files.filter((file) => file.endsWith(".test.ts"));
  if (files.some((file) => file.endsWith("contract.ts")))
    tests.push("test/database/memory.test.ts", "test/database/sqlite/sqlite_database.test.ts");
  return [...new Set(tests)];
}
