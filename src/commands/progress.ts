/** How progress is shown. */
export interface ProgressOptions {
  /** Where words for people go. */
  readonly stderr: (text: string) => void;
  /** Whether that is a terminal; elsewhere there is no bar. */
  readonly isTerminal: boolean;
  /** How much there is to do, in any unit. @default unknown: rate only */
  readonly total?: number | undefined;
  /** A clock, in milliseconds. */
  readonly now?: () => number;
}

/** A line at the bottom of the terminal that tells how far something is. */
export interface Progress {
  /**
   * Draws the bar, ten times a second at most.
   *
   * @param done How much of `total` is done.
   * @param plants How many plants that was.
   */
  update(done: number, plants: number): void;
  /** Words that stay, above the bar. */
  print(text: string): void;
  /** Takes the bar away. */
  clear(): void;
}

/** How often the bar is drawn, in milliseconds. */
const INTERVAL = 100;
/** To the beginning of the line, and erase it (ECMA-48: CR, EL). */
const ERASE = "\r\x1b[K";

/** Shows progress on a terminal: how far, how many plants a second, how long it will still take. */
export function progressBar(options: ProgressOptions): Progress {
  const { stderr, isTerminal, total, now = () => performance.now() } = options;
  const begin = now();
  let due = begin + INTERVAL;
  let line = "";

  function draw(text: string): void {
    if (text !== line) stderr(`${ERASE}${text}`);
    line = text;
  }

  return {
    update(done, plants) {
      if (!isTerminal || now() < due) return;
      due = now() + INTERVAL;
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
