import { statSync } from "node:fs";

import { eventLoopTurn, pause, withAbort, withDeadline } from "../async/timers.ts";
import { type TokenRecord, tokenStatus, type TokenStore } from "../auth/token_store.ts";
import type { DatabaseAdapter } from "../database/adapter.ts";
import { DatabaseError } from "../database/database.ts";
import { adapterOf, URL_SCHEMES } from "../database/databases.ts";
import { reasonOfRefusal, toCommandError } from "../database/refusals.ts";
import {
  CommandError,
  ConfigError,
  ERRORS,
  PlantStoreError,
  QuietFailure,
  reasonOf,
} from "../errors.ts";
import type { PlantStore, StoreOutcome } from "../group_commit/plant_store.ts";
import { faultOf, type NewPlant, PLANT_FIELDS } from "../plant/plant.ts";
import { parsePlant } from "../plant/plant_json.ts";
import { type Call, DATABASE_FLAGS, type Subcommand } from "./command.ts";
import { grouped, namesOf, quoted } from "./formatting.ts";
import { JSON_FLAG, printResult } from "./result.ts";
import { type Io, warningsTo } from "./terminal.ts";

const HELP = `
A source is a file of lines, as export prints them; "-" for standard input; or
a database: the file of a SQLite database, or a URL.

With --tokens, the tokens of the source are accepted here with their names,
scopes and expiry. What is revoked in either database is revoked here.`;

/** `plant-store import`: never changes a stored plant. Reports refused plants, and continues. */
export const importPlants: Subcommand = {
  usage: "import <source>",
  description: "Add plants from lines of JSON, or from another database",
  flags: [["--tokens", "Add the tokens of a database, too"], JSON_FLAG, ...DATABASE_FLAGS],
  help: () => HELP,
  example: "import plants.ndjson",
  run,
};

/** Adds batch after batch, and prints how many plants were added, present and refused. */
async function run({ argument, flags, config, adapter, io }: Call): Promise<void> {
  const { maxBodyBytes } = await config();
  const { name: database, openForWriting } = await adapter();

  // Any plant that the API accepts must fit in a line, even if its id is longer there.
  const maxLineBytes = Math.max(2 ** 26, maxBodyBytes + 64);
  await using source = (await isDatabase(argument))
    ? await openDatabase(argument, io)
    : openLines(argument, maxLineBytes, io);
  if (flags["tokens"] === true && source.tokens === undefined)
    throw new ConfigError(`Cannot use --tokens with ${quoted(argument)}: expected a database`);

  const counts = { added: 0, present: 0, refused: 0 };
  // The position of the last item that was committed or refused.
  let position: Item["position"] | undefined;
  let tokens: AddedTokens = { valid: [], revoked: [], refused: [] };
  const reached = () => (position === undefined ? "" : ` after ${source.unit} ${position}`);

  try {
    // Before opening the database: an unreadable source must not create one.
    const batches = source.batches();
    let batch = await batches.next();
    const ofSource = flags["tokens"] === true ? await source.tokens?.() : undefined;

    const onCreate = (created: string) => io.stderr(`Initialized empty database "${created}"\n`);
    await using opened = await openForWriting({ create: true, onCreate });

    if (ofSource !== undefined) {
      tokens = await addTokens(ofSource, opened.tokens, io.stop).catch((error: unknown) => {
        throw toCommandError(error, { action: "add tokens", database });
      });
      io.stderr(wordsFor(tokens));
    }

    for (; batch.done !== true; batch = await batches.next()) {
      const items = batch.value;
      const plants = items.flatMap(({ plant }) => plant ?? []);
      const adding = addAll(plants, opened.plants);
      // After a stop, wait briefly for the batch in flight, so that it is counted.
      const added =
        (await withAbort(adding, io.stop)) ??
        (await withDeadline(adding, STOP_MS, () => undefined));
      if (added === undefined) break;

      const reports = countOutcomes(counts, items, added);
      position = items.at(-1)?.position ?? position;

      for (const report of reports) io.stderr(`${source.unit} ${report}\n`);
      await withAbort(io.printed(), io.stop);
      // Reading a file does not wait: signals are handled here.
      await eventLoopTurn();
    }
  } catch (error) {
    const reason = reasonOfRefusal(error);
    if (reason === undefined) throw error;
    // Plants in earlier batches stay.
    throw new CommandError(`Cannot add plants${reached()}: ${reason}`, {
      cause: error,
    });
  }

  const { added, present, refused } = counts;
  const summary = `${grouped(added)} added, ${grouped(present)} already there, ${grouped(refused)} refused`;

  if (io.stop.aborted)
    throw new CommandError(`Stopped${reached()}, run the import again to continue: ${summary}`);

  const result = {
    database,
    file: source.name,
    ...counts,
    validTokens: tokens.valid,
    revokedTokens: tokens.revoked,
    refusedTokens: tokens.refused,
  };
  await printResult({ io, flags }, result, () => io.stderr(`${summary}\n`));
  source.requireWhole();
  if (refused > 0 || tokens.refused.length > 0) throw new QuietFailure();
}

/** A source of plants. Disposing of it closes it. */
interface Source extends AsyncDisposable {
  /** The name in the result, without secrets. */
  readonly name: string;
  /** The name of an item's position, for messages. */
  readonly unit: "line" | "id";
  /** The items in batches to commit. After a stop, ends with the items that have arrived. */
  batches(): AsyncIterator<readonly Item[]>;
  /** Reads the tokens of a database. */
  readonly tokens?: () => Promise<readonly TokenRecord[]>;
  /** @throws {DatabaseError} If some plants or tokens could not be read. */
  requireWhole(): void;
}

/** A plant, or the reason for its refusal. */
interface Item {
  /** The number of the line, or the id. */
  readonly position: number | bigint;
  readonly plant?: NewPlant;
  readonly fault?: string;
}

/**
 * Adds the outcomes of a batch to the counts.
 *
 * @param added The outcome of each item that has a plant, in order.
 * @returns The position of each item that was refused, and the reason.
 */
function countOutcomes(
  counts: Record<"added" | "present" | "refused", number>,
  items: readonly Item[],
  added: readonly StoreOutcome[],
): string[] {
  const outcomes = added.values();
  const reports: string[] = [];

  for (const { position, plant, fault = ERRORS.id_taken.message } of items) {
    const outcome = plant && outcomes.next().value;
    if (outcome === "added" || outcome === "present") counts[outcome]++;
    else reports.push(`${position}: ${fault}`);
  }

  counts.refused += reports.length;
  return reports;
}

/** The names of a source's tokens, by outcome. */
interface AddedTokens {
  /** Tokens that are accepted now, but were not before. */
  readonly valid: readonly string[];
  /** Tokens that were accepted, but are revoked in the source. */
  readonly revoked: readonly string[];
  /** Tokens whose names belong to other tokens. */
  readonly refused: readonly string[];
}

/**
 * Adds the tokens of another database, one by one: after a kill or a stop, another run adds the
 * rest. The digest identifies a token. One that exists keeps its name, scopes and expiry.
 */
async function addTokens(
  ofSource: readonly TokenRecord[],
  tokens: TokenStore,
  stop: AbortSignal,
): Promise<AddedTokens> {
  const before = byDigest(await tokens.list());

  for (const { name, digest, createdAt, expiresAt, revokedAt, scopes } of ofSource) {
    if (stop.aborted) break;
    if (before.has(digest.toHex())) continue;
    await tokens.add({ name, digest, createdAt, expiresAt, revokedAt, scopes });
    // SQLite does not wait: signals are handled here.
    await eventLoopTurn();
  }

  // Compare with the tokens that are stored now: another import may run at the same time.
  const after = byDigest(await tokens.list());
  const valid: string[] = [];
  const revoked: string[] = [];
  const refused: string[] = [];

  for (const { name, digest, revokedAt } of ofSource) {
    const stored = after.get(digest.toHex());
    // After a stop, still report the tokens that are valid now. The next run does the rest.
    if (stop.aborted && (stored === undefined || revokedAt !== null)) continue;
    if (stored === undefined) refused.push(name);
    else if (stored.revokedAt === null && revokedAt !== null) {
      await tokens.revoke(stored.name, revokedAt);
      revoked.push(stored.name);
    } else if (!before.has(digest.toHex()) && tokenStatus(stored) === "active")
      valid.push(stored.name);
  }

  return { valid, revoked, refused };
}

function byDigest(tokens: readonly TokenRecord[]): ReadonlyMap<string, TokenRecord> {
  return new Map(tokens.map((token) => [token.digest.toHex(), token]));
}

function wordsFor({ valid, revoked, refused }: AddedTokens): string {
  const of = (names: readonly string[]) =>
    names.length === 0 ? "0" : `${grouped(names.length)} (${namesOf(names)})`;
  const reports = refused.map(
    (name) => `token ${quoted(name)}: the name belongs to another token\n`,
  );
  const words = `Tokens: ${of(valid)} made valid, ${of(revoked)} revoked, ${grouped(refused.length)} refused\n`;
  return reports.join("") + words;
}

/** How long a batch may take, in milliseconds: it may wait for the lock of another process. */
const ADD_TIMEOUT_MS = 30_000;

/** How long a batch may take after a stop, in milliseconds. */
const STOP_MS = 1_000;

/** Adds plants. Until the deadline, retries those that another transaction has locked. */
async function addAll(
  plants: readonly NewPlant[],
  store: PlantStore,
): Promise<readonly StoreOutcome[]> {
  const deadline = performance.now() + ADD_TIMEOUT_MS;
  let outcomes = await store.add(plants, { timeoutMs: ADD_TIMEOUT_MS });

  while (outcomes.includes("unavailable")) {
    const timeoutMs = deadline - performance.now();
    if (timeoutMs <= 0)
      throw new PlantStoreError("storage_unavailable", undefined, {
        cause: new Error(LOCKED),
      });
    await pause(LOCKED_PAUSE_MS);

    const locked = plants.filter((_, index) => outcomes[index] === "unavailable");
    const later = (await store.add(locked, { timeoutMs })).values();
    outcomes = outcomes.map((outcome) =>
      outcome === "unavailable" ? (later.next().value ?? outcome) : outcome,
    );
  }

  return outcomes;
}

/** How long to wait before adding locked plants again, in milliseconds. */
const LOCKED_PAUSE_MS = 100;
const LOCKED = "another transaction held a lock for too long";

/** Whether a source is a database: a URL, or an SQLite file. */
async function isDatabase(source: string): Promise<boolean> {
  if (URL_SCHEMES.some((scheme) => source.startsWith(scheme))) return true;

  try {
    // A pipe can be read only once.
    if (!statSync(source).isFile()) return false;
    return (await Bun.file(source).slice(0, SQLITE_HEADER.length).text()) === SQLITE_HEADER;
  } catch {
    // Reading its lines says why.
    return false;
  }
}

/** https://www.sqlite.org/fileformat2.html#magic_header_string */
const SQLITE_HEADER = "SQLite format 3\0";

/**
 * Opens the plants of a database.
 *
 * @throws {ConfigError} If the URL cannot be used. The message does not quote it.
 * @throws {DatabaseError} If the database cannot be used.
 */
async function openDatabase(url: string, io: Io): Promise<Source> {
  let adapter: DatabaseAdapter;
  try {
    adapter = adapterOf(url);
  } catch (error) {
    throw new ConfigError(`Cannot use the source: ${reasonOf(error)}`, {
      cause: error,
    });
  }
  const reader = await adapter.openPlants({ onWarning: warningsTo(io) });
  let failure: DatabaseError | undefined;
  let hasTokens = true;

  return {
    name: adapter.name,
    unit: "id",

    async tokens() {
      return await reader.tokens().catch((error: unknown) => {
        if (!(error instanceof DatabaseError))
          throw toCommandError(error, { action: "read the tokens", database: adapter.name });
        // Add the plants of a corrupt database without its tokens.
        io.stderr(`${error.message}\n`);
        hasTokens = false;
        return [];
      });
    },

    async *batches() {
      try {
        for await (const page of reader.pages()) {
          if (io.stop.aborted) return;
          const items = page.map((plant) => checkPlant(plant));
          for (let start = 0; start < items.length; start += BATCH_ITEMS)
            yield items.slice(start, start + BATCH_ITEMS);
        }
      } catch (error) {
        // Add everything readable in a corrupt database.
        if (error instanceof DatabaseError) failure = error;
        else
          throw toCommandError(error, {
            action: "read the plants",
            database: adapter.name,
          });
      }
    },

    requireWhole() {
      if (failure !== undefined) throw failure;
      // The reason was printed before.
      if (!hasTokens) throw new QuietFailure();
    },
    [Symbol.asyncDispose]: () => reader[Symbol.asyncDispose](),
  };
}

/** Checks a plant as the API checks a body: SQL may have stored what the API refuses. */
function checkPlant(plant: NewPlant): Item {
  const faults = PLANT_FIELDS.flatMap((field) => {
    const fault = faultOf(field, plant[field]);
    return fault === undefined ? [] : [`\`${field}\` ${fault}`];
  });
  const position = plant.id;
  return faults.length === 0 ? { position, plant } : { position, fault: faults.join("; ") };
}

/** Opens lines of JSON: a file, or standard input. */
function openLines(name: string, maxBytes: number, { stdin, stop }: Io): Source {
  const refuse = (cause: unknown): never => {
    throw new CommandError(`Cannot read "${name}": ${reasonOf(cause)}`, {
      cause,
    });
  };

  try {
    const reader = (name === "-" ? stdin() : Bun.file(name).stream()).getReader();
    const read = () => withAbort(reader.read().catch(refuse), stop);

    return {
      name,
      unit: "line",
      batches: () => batchesOf(splitLines(read, maxBytes)),
      requireWhole() {},
      // A read error is reported by the read.
      [Symbol.asyncDispose]: async () => void reader.cancel().catch(() => {}),
    };
  } catch (cause) {
    return refuse(cause);
  }
}

/** A batch has at most this many plants, so that a server need not wait long for its commit. */
const BATCH_ITEMS = 1_000;
/** A batch of lines ends at this many bytes, because a name may be long. */
const BATCH_BYTES = 2 ** 22;

/** Yields batches of lines to commit, without blank lines. */
async function* batchesOf(input: ReturnType<typeof splitLines>): AsyncGenerator<readonly Item[]> {
  let items: Item[] = [];
  /** The size of the lines since the last batch, in bytes. */
  let bytes = 0;
  let isFirst = true;

  for await (const lines of input) {
    for (const { number, content } of lines) {
      bytes += content.length + 1;
      const item = checkLine(number, content, isFirst);
      if (item === undefined) continue;

      isFirst = false;
      items.push(item);
      if (items.length < BATCH_ITEMS && bytes < BATCH_BYTES) continue;

      yield items;
      items = [];
      bytes = 0;
    }
  }

  yield items;
}

/**
 * Checks a line as the API checks a body; returns `undefined` if it is blank.
 *
 * @throws {CommandError} If the first line is not JSON: the file has another format, and every line
 *   would be refused.
 */
function checkLine(position: number, content: Uint8Array, isFirst: boolean): Item | undefined {
  try {
    return { position, plant: parsePlant(content, "the line") };
  } catch (error) {
    if (!(error instanceof PlantStoreError)) throw error;
    // The decoder drops a byte order mark, which may be all that the first line of a file has.
    if (/^[ \t\r]*$/.test(new TextDecoder().decode(content))) return undefined;
    if (isFirst && error.code === "malformed_json")
      throw new CommandError(
        `Cannot add plants: expected one JSON object per line, as export prints; line ${position}: ${error.message}`,
      );
    return { position, fault: error.message };
  }
}

const NEWLINE = 0x0a;

/**
 * Yields the lines that end in each chunk, without line ends.
 *
 * @param read Resolves to `undefined` after a stop.
 * @throws {CommandError} If a line is longer than the limit: memory may not hold it.
 */
async function* splitLines(
  read: () => Promise<{ done: boolean; value?: Uint8Array | undefined } | undefined>,
  maxBytes: number,
) {
  /** The parts of the incomplete line. */
  let parts: Uint8Array[] = [];
  let length = 0;
  let number = 1;

  for (;;) {
    const result = await read();
    // After a stop, the last line may be incomplete: drop it.
    if (result === undefined) return;

    // End the last line, which may lack a newline. If it has one, this adds only a blank line.
    const chunk = result.value ?? Uint8Array.of(NEWLINE);
    const lines: { number: number; content: Uint8Array }[] = [];
    let start = 0;

    for (;;) {
      const end = chunk.indexOf(NEWLINE, start);
      const part = chunk.subarray(start, end === -1 ? chunk.length : end);
      parts.push(part);
      length += part.length;
      if (length > maxBytes)
        throw new CommandError(
          `Cannot add line ${number}: it must have at most ${maxBytes} bytes; remove it, and run the import again`,
        );
      if (end === -1) break;

      lines.push({ number, content: parts.length === 1 ? part : Buffer.concat(parts) });
      number++;
      parts = [];
      length = 0;
      start = end + 1;
    }

    yield lines;
    if (result.done) return;
  }
}
