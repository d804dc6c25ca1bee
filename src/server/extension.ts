import type { Logger } from "@logtape/logtape";

import type { Authenticate } from "../auth/authenticate.ts";
import type { Gather } from "../database/adapter.ts";
import type { Config } from "../settings/settings.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { ServiceObserver } from "../telemetry/service_observer.ts";
import type { Parts } from "./token_refresh.ts";

/**
 * A part of the service that a fork may leave out. The service takes it from the list of extensions,
 * and does not name it. Without its settings it does nothing.
 */
export interface Extension {
  /**
   * Checks what a start can be refused for, without starting.
   *
   * @throws {ConfigError} If a file or a variable cannot be used.
   * @default nothing is checked
   */
  check?(config: Config): Promise<void>;

  /**
   * Starts before the database is opened.
   *
   * @returns What wraps the parts of the service: nothing if the settings do not ask for it.
   * @throws {ConfigError} If a file or a variable cannot be used.
   */
  start(config: Config, service: StartingService): Promise<Wrappers>;
}

/** What an extension has of the service that starts. */
export interface StartingService {
  readonly log: Logger;
  readonly metrics: Pick<Metrics, "register">;
  readonly parts: Parts;
  /** Adds a step to the stop of the service, and its share of the time. */
  readonly atStop: (share: number, step: (timeoutMs: number) => Promise<unknown>) => void;
}

/** The parts of a service that extensions may wrap. */
export interface Wrappable {
  /** Makes the queue of plants. */
  readonly gather: Gather;
  readonly observer: ServiceObserver;
  /** More properties of the current request, for its lines in the log. */
  readonly requestProperties: () => Readonly<Record<string, unknown>>;
  readonly authenticate: Authenticate;
  readonly fetch: (request: Request) => Response | Promise<Response>;
  /** Creates a token if there is none, for the first client. */
  readonly offerFirstToken: () => Promise<void>;
}

/**
 * How to wrap parts of a service. Each is called once, when the service has made that part: a request
 * costs nothing more if no extension is on.
 */
export type Wrappers = {
  readonly [Part in keyof Wrappable]?: (inner: Wrappable[Part]) => Wrappable[Part];
};
