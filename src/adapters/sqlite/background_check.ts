import { type IntegrityCheck, type IntegrityResult, startIntegrityCheck } from "./integrity_client.ts";

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

/** Checks a database for damage once, soon after a server has opened it. */
export function backgroundCheck(path: string, options: BackgroundCheckOptions): BackgroundCheck {
  let check: IntegrityCheck | undefined;
  const timer = setTimeout(start, DELAY_MS);
  timer.unref();

  function start(): void {
    const begin = performance.now();
    options.onInfo("Integrity check started", {});
    check = startIntegrityCheck(path, { background: true });
    void check.result.then((result) => report(result, Math.round(performance.now() - begin), options));
  }

  return {
    async stop() {
      clearTimeout(timer);
      await check?.stop();
    },
  };
}

function report(result: IntegrityResult, durationMs: number, options: BackgroundCheckOptions): void {
  if (result.type === "damaged") options.onDamage(result.finding);
  else if (result.type === "failed") options.onWarning("Integrity check not finished", result.reason);
  else if (result.type === "sound") {
    const { plants, pages } = result;
    options.onInfo("Integrity check passed", { plants, pages, durationMs });
  }
}
