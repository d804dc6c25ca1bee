import { DurableObject } from "cloudflare:workers";

import { app, onSignal } from "./app.ts";

/** The app in one object: group commit needs a context that outlives a request. */
export class Garden extends DurableObject {
  fetch(request: Request): Response | Promise<Response> {
    return app.fetch(request);
  }

  signal(name: keyof typeof onSignal): void {
    onSignal[name]();
  }
}

interface Environment {
  readonly GARDEN: { getByName(name: string): Garden };
}

export default {
  fetch: (request: Request, { GARDEN }: Environment) => GARDEN.getByName("garden").fetch(request),
};
