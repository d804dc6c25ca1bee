// What is used here of packages in test/runtimes/node_modules, so that a checkout without them is
// checked as well.

declare module "srvx/node" {
  export function serve(options: {
    readonly hostname: string;
    readonly port: number;
    readonly silent: boolean;
    readonly gracefulShutdown: boolean;
    readonly fetch: (request: Request) => Response | Promise<Response>;
  }): { readonly url: string; ready(): Promise<unknown>; close(): Promise<void> };
}

declare module "miniflare" {
  import type { Readable } from "node:stream";

  export class Miniflare {
    constructor(options: {
      readonly modules: readonly {
        readonly type: "ESModule";
        readonly path: string;
        readonly contents: string;
      }[];
      readonly compatibilityDate: string;
      readonly compatibilityFlags: readonly string[];
      readonly cf: false;
      readonly durableObjects?: Readonly<
        Record<string, { readonly className: string; readonly useSQLite: true }>
      >;
      readonly unsafeDirectSockets: readonly { readonly host: string; readonly port: number }[];
      readonly handleRuntimeStdio?: (stdout: Readable, stderr: Readable) => void;
    });
    readonly ready: Promise<URL>;
    unsafeGetDirectURL(): Promise<URL>;
    getDurableObjectNamespace<Stub>(name: string): Promise<DurableObjects<Stub>>;
    dispose(): Promise<void>;
  }

  interface DurableObjects<Stub> {
    getByName(name: string): Stub;
  }
}

declare module "cloudflare:workers" {
  export class DurableObject {
    protected readonly env: unknown;
  }
}
