import type {
  DefinitionBase,
  Elysia,
  EphemeralType,
  MetadataBase,
  RouteBase,
  SingletonBase,
} from "elysia";

/**
 * Gives the functions the type of the Elysia app that they wrap. Eden, a client for TypeScript,
 * infers the routes, the body and the responses from that type.
 *
 * Every other member is `never`, because Elysia's own methods bypass `respond`.
 *
 * The type has no models, by which routes refer to schemas. Our declarations would name TypeBox for
 * them, and TypeScript's `nodenext` resolves that to other types than Elysia's declarations do.
 */
export function typedAs<
  Path extends string,
  Singleton extends SingletonBase,
  Models extends DefinitionBase,
  Metadata extends MetadataBase,
  Routes extends RouteBase,
  Ephemeral extends EphemeralType,
  Volatile extends EphemeralType,
>(
  _app: Elysia<Path, Singleton, Models, Metadata, Routes, Ephemeral, Volatile>,
  handlers: Handlers,
) {
  return Object.freeze(handlers) as unknown as Elysia<
    Path,
    Singleton,
    { typebox: {}; error: {} },
    Metadata,
    Routes,
    Ephemeral,
    Volatile
  > & {
    readonly [Name in Exclude<keyof Elysia & string, "fetch" | "handle" | `~${string}`>]: never;
  };
}

/** The two functions of an app that keep the promises of the API. */
interface Handlers {
  readonly fetch: (request: Request) => Response | Promise<Response>;
  readonly handle: (request: Request) => Promise<Response>;
}
