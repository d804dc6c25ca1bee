import { existsSync } from "node:fs";
import { join } from "node:path";

import { TOKEN } from "../support/client.ts";
import { ROOT, runToEnd } from "../support/program.ts";

/**
 * A program under test: it serves `POST /plants` and stores into `plants.db` in its working
 * directory.
 */
export interface Contender {
  readonly name: string;
  readonly program: readonly string[];
  /** More of the environment than {@linkcode TOKEN} as `AUTH_TOKENS`. @default none */
  readonly env?: Readonly<Record<string, string>>;
  /** Its working directory. @default a new one */
  readonly cwd?: string;
  /** What it logs once it has done what a start makes it do. @default it is not waited for */
  readonly settled?: RegExp;
  /** Whether it stores at all; what does not is a ceiling. @default {true} */
  readonly stores?: boolean;
  /** How many plants are stored, asked once it has ended. @default those in `plants.db` */
  readonly count?: () => Promise<number>;
  /** How many of it run at once. @default {1} */
  readonly servers?: number;
  /** The processes of a database that is apart. @default none */
  readonly databaseProcesses?: () => readonly number[];
}

const EXECUTABLE = join(ROOT, "dist/plant-store");

/** The name of the service in every table. */
export const OURS_NAME = "plant-store";

/**
 * The service, as `bun run build` makes it.
 *
 * @throws {Error} If it is not built.
 */
export function ours(differences: Partial<Contender> = {}): Contender {
  if (!existsSync(EXECUTABLE))
    throw new Error(`There is no ${EXECUTABLE}: run "bun run build" first`);
  return { name: OURS_NAME, program: [EXECUTABLE], ...differences };
}

/** The token that every contender accepts. */
export const CREDENTIALS = { AUTH_TOKENS: TOKEN };

/** The programs by hand on `Bun.serve`, with group commit. */
export const BY_HAND = {
  lean: bun("by hand, lean", "by_hand.ts"),
  leanWorker: bun("by hand, lean, Worker", "by_hand_worker.ts"),
} as const;

/**
 * `Bun.serve` that checks and responds, and stores nothing: what receiving a plant costs, without
 * keeping it.
 */
export const CEILING: Contender = {
  ...bun("Bun.serve, nothing stored", "peers/ceiling.ts"),
  stores: false,
};

/** What PostgreSQL is usually given: one INSERT a request, over a pool. */
export const POOL = bun("one INSERT a request, pool of 10", "by_hand_postgres.ts");

/**
 * The lean program with a Worker, on the packages of plant-store: Elysia, its schemas and parser,
 * the bearer plugin.
 */
export const LEAN_ELYSIA = bun("lean, on Elysia", "peers/elysia_worker.ts");

/** What its documentation shows, with one transaction a request. */
export const ELYSIA_DRIZZLE = bun("Elysia + Drizzle", "peers/elysia_drizzle.ts");

/** Likewise. */
export const HONO = bun("Hono + bun:sqlite", "peers/hono.ts");

function bun(name: string, file: string): Contender {
  return { name, program: [process.execPath, join(import.meta.dir, file)] };
}

/**
 * Installs the packages of the other frameworks, by their own lock file, unless they are there.
 *
 * @throws {Error} If that fails.
 */
export async function installPeers(): Promise<void> {
  if (existsSync(join(import.meta.dir, "node_modules"))) return;
  const args = ["install", "--frozen-lockfile", "--cwd", import.meta.dir];
  const env = process.env as Record<string, string>;
  const { exitCode, stdout, stderr } = await runToEnd({
    program: [process.execPath],
    args,
    cwd: ROOT,
    env,
  });
  if (exitCode !== 0)
    throw new Error(`bun install --frozen-lockfile --cwd test/bench:\n${stdout}${stderr}`);
}
