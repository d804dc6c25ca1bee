import type { CheckResult } from "../adapter.ts";
import { identityAt } from "./damage_mark.ts";
import { integrityChecker } from "./integrity_client.ts";

/** Where a server hears of its check. */
export interface BackgroundCheckOptions {
  readonly onInfo: (message: string, properties: Record<string, unknown>) => void;
  readonly onWarning: (message: string, cause?: unknown) => void;
  /** Called with what was found, when the file is damaged. */
  readonly onDamage: (finding: string) => void;
}

/** The check beside a server. */
export interface BackgroundCheck {
  /** Ends the check, if it has not ended. Resolves when its connection is closed. */
  stop(): Promise<void>;
}

/** When the check begins, in milliseconds: a start has the processors to itself. */
const DELAY_MS = 1_000;

/**
 * Checks a database for damage once, soon after a server has opened it. Resolves once the Worker that will do it runs:
 * Bun ends a process that has no file descriptors for a new Worker, and clients could take the last ones until then.
 */
export async function backgroundCheck(path: string, options: BackgroundCheckOptions): Promise<BackgroundCheck> {
  // It was opened just now. Later there can be another one at the path.
  const file = identityAt(path);
  const checker = integrityChecker(path);
  await checker.ready;
  const timer = setTimeout(async () => {
    const begin = performance.now();
    options.onInfo("Integrity check started", {});
    const result = await checker.check({ background: true, file });
    report(result, Math.round(performance.now() - begin), options);
  }, DELAY_MS);
  timer.unref();
  return {
    async stop() {
      clearTimeout(timer);
      await checker.stop();
    },
  };
}

function report(result: CheckResult, durationMs: number, options: BackgroundCheckOptions): void {
  if (result.type === "damaged") options.onDamage(result.finding);
  else if (result.type === "failed") options.onWarning("Integrity check not finished", result.reason);
  else if (result.type === "sound") {
    const { plants, pages } = result;
    options.onInfo("Integrity check passed", { plants, pages, durationMs });
  }
}
