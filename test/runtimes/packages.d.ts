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
