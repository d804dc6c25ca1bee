import { DurableObject } from "cloudflare:workers";

import { app, onSignal } from "./app.ts";

/** The app in one object: group commit needs a context that outlives a request. */
export class App extends DurableObject {
  fetch(request: Request): Response | Promise<Response> {
    return app.fetch(request);
  }

  signal(name: keyof typeof onSignal): void {
    onSignal[name]();
  }
}

interface Environment {
  readonly APP: { getByName(name: string): App };
}

export default {
  fetch: (request: Request, { APP }: Environment) => APP.getByName("app").fetch(request),
};
