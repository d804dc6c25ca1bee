/** How progress is shown. */
export interface ProgressOptions {
  /** Takes messages for people. */
  readonly stderr: (text: string) => void;
  /** Whether they go to a terminal; elsewhere there is no bar. */
  readonly isTerminal: boolean;
  /** How much there is to do, in any unit. @default unknown: rate only */
  readonly total?: number | undefined;
  /** A clock, in milliseconds. */
  readonly now?: () => number;
}

/** A line at the bottom of a terminal that shows how much is done. */
export interface Progress {
  /**
   * Draws the bar, ten times a second at most.
   *
   * @param done How much of `total` is done.
   * @param plants How many plants that was.
   */
  update(done: number, plants: number): void;
  /** Prints a message above the bar, where it stays. */
  print(text: string): void;
  /** Erases the bar. */
  clear(): void;
}

/** How often the bar is drawn, in milliseconds. */
const INTERVAL_MS = 100;
/** To the beginning of the line, and erase it (ECMA-48: CR, EL). */
const ERASE = "\r\x1b[K";

/** Shows progress on a terminal: how much is done, how many plants a second, and how much time is left. */
export function progressBar(options: ProgressOptions): Progress {
  const { stderr, isTerminal, total, now = () => performance.now() } = options;
  const begin = now();
  let due = begin + INTERVAL_MS;
  let line = "";

  function draw(text: string): void {
    if (text !== line) stderr(`${ERASE}${text}`);
    line = text;
  }

  return {
    update(done, plants) {
      if (!isTerminal || now() < due) return;
      due = now() + INTERVAL_MS;
      draw(describe({ done, total, plants, elapsed: (now() - begin) / 1000 }));
    },
    print(text) {
      if (text !== "") stderr(line === "" ? text : `${ERASE}${text}${line}`);
    },
    clear: () => draw(""),
  };
}

interface State {
  readonly done: number;
  readonly total: number | undefined;
  readonly plants: number;
  /** In seconds. */
  readonly elapsed: number;
}

function describe({ done, total, plants, elapsed }: State): string {
  const rate = `${plants} plants, ${Math.round(plants / elapsed)} a second`;
  if (total === undefined || done === 0) return rate;
  const share = Math.min(1, done / total);
  return `${bar(share)} ${rate}, ${clock((elapsed * (1 - share)) / share)} left`;
}

const BAR_WIDTH = 20;

function bar(share: number): string {
  const full = Math.floor(share * BAR_WIDTH);
  return `[${"#".repeat(full)}${"-".repeat(BAR_WIDTH - full)}] ${Math.floor(share * 100)} %`;
}

/** Minutes and seconds; hours before them where there are any. */
function clock(seconds: number): string {
  const whole = Math.ceil(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) => String(part).padStart(2, "0"));
  return [...(whole >= 3600 ? [Math.floor(whole / 3600)] : []), ...parts].join(":");
}
