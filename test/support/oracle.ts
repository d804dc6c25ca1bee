import {
  type FieldValue,
  isRequired,
  kindOf,
  type NewPlant,
  type Plant,
  PLANT_FIELDS,
} from "../../src/plant/plant.ts";
import { TEST_KINDS } from "./kinds.ts";
import { writtenJson, WrittenNumber } from "./written_json.ts";

/** A request to the service, as it is on the wire. */
export interface WireRequest {
  /** With its query, if it has one. */
  readonly path: string;
  readonly method: string;
  /** One value for each header of that name. */
  readonly authorization: readonly string[];
  readonly contentType?: string | undefined;
  readonly contentEncoding?: string | undefined;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** An error that the response has to be; `faults` are the fields that its message names. */
export interface PredictedError {
  readonly status: number;
  readonly error: number;
  readonly faults?: readonly string[];
}

/** What the response has to be. */
export type Prediction =
  { readonly status: 200; readonly body: Omit<NewPlant, "id"> } | PredictedError;

/** What the oracle knows of the program under test. */
export interface OracleOptions {
  /** The one token that is accepted. */
  readonly token: string;
  readonly maxBodyBytes: number;
}

/**
 * What the API guide promises for requests that come one after another, implemented a second time
 * and differently from the service. It parses JSON by a parser of its own that keeps numbers as they are
 * written, and exact arithmetic for integers. It remembers what was stored.
 */
export function oracle(options: OracleOptions) {
  const stored = new Map<bigint, NewPlant>();

  function predict(request: WireRequest): Prediction {
    const plant = judgeRequest(request, options);
    if ("error" in plant) return plant;
    const { id, ...body } = plant;
    if (!Bun.deepEquals(stored.get(id) ?? plant, plant)) return failure(4091);
    stored.set(id, plant);
    return { status: 200, body };
  }

  return { predict, stored };
}

/**
 * The plant that a request stores if its id is free, or what is wrong with it: the first in the
 * order of the checks.
 */
export function judgeRequest(
  request: WireRequest,
  { token, maxBodyBytes }: OracleOptions,
): NewPlant | PredictedError {
  const { method, authorization, contentType, contentEncoding, body } = request;
  const path = request.path.split("?")[0] ?? "";
  if (!PATHS.includes(path)) return failure(4041);
  if (path !== "/plants" || method !== "POST") return failure(4051);
  if (!/^bearer(?:[ \t]|$)/i.test(authorization[0] ?? "")) return failure(4011);
  if (authorization.length > 1 || bearerToken(authorization.join()) !== token) return failure(4012);
  if (!isJsonInUtf8(contentType ?? "") || contentEncoding !== undefined) return failure(4151);

  return body.length > maxBodyBytes ? failure(4131) : judgeBody(body);
}

/** Beside the operation's, a path that takes no POST. */
const PATHS = ["/plants", "/livez"];

/** The plant that a body of any size is, or what is wrong with it. */
export function judgeBody(body: Uint8Array): NewPlant | PredictedError {
  const value = writtenJson(body);
  if (value === undefined) return failure(4001);
  if (!(value instanceof Map))
    return { ...failure(4002), faults: ["id", ...PLANT_FIELDS.filter(isRequired)] };

  const written = value.get("id");
  const id = written instanceof WrittenNumber ? int64(written.source) : undefined;
  const faults: string[] = id === undefined ? ["id"] : [];
  const fields: Partial<Record<keyof Plant, FieldValue>> = {};

  for (const field of PLANT_FIELDS) {
    if (!value.has(field) && !isRequired(field)) continue;
    const kept = TEST_KINDS[kindOf(field)].kept(value.get(field));
    if (kept === undefined) faults.push(field);
    else fields[field] = kept;
  }

  return faults.length > 0 ? { ...failure(4002), faults } : ({ id, ...fields } as NewPlant);
}

function failure(error: number): PredictedError {
  return { status: Number(String(error).slice(0, 3)), error };
}

function bearerToken(authorization: string): string | undefined {
  const [scheme = "", ...rest] = authorization.split(" ");
  return scheme.toLowerCase() === "bearer" && rest.length > 0
    ? rest.join(" ").replace(/^ +/, "")
    : undefined;
}

/** For media types that are well formed. */
function isJsonInUtf8(contentType: string): boolean {
  const parts = contentType.match(/(?:"(?:\\.|[^"\\])*"|[^;"])+/g) ?? [];
  const [type, ...parameters] = parts.map((part) => part.trim().toLowerCase());
  const charsets = parameters.filter((parameter) => parameter.startsWith("charset="));
  return (
    type === "application/json" && charsets.every((charset) => /^charset="?utf-8"?$/.test(charset))
  );
}

const MAX_SAFE = 2n ** 53n - 1n;

/** The integer that a JSON number is, if it counts as an id. */
function int64(source: string): bigint | undefined {
  const [, sign, whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE](.+))?$/.exec(source) ?? [];
  const isPlain = /^-?\d+$/.test(source);
  const value = scaled(BigInt(whole + fraction), BigInt(exponent) - BigInt(fraction.length));

  if (value === undefined) return undefined;
  const signed = sign === "-" ? -value : value;
  const fits = isPlain ? BigInt.asIntN(64, signed) === signed : value <= MAX_SAFE;
  return fits ? signed : undefined;
}

/** digits × 10^shift, where that is an integer of a size that matters. */
function scaled(digits: bigint, shift: bigint): bigint | undefined {
  if (digits === 0n || shift === 0n) return digits;
  if (shift > 20n || -shift > String(digits).length) return undefined;
  if (shift > 0n) return digits * 10n ** shift;
  const divisor = 10n ** -shift;
  return digits % divisor === 0n ? digits / divisor : undefined;
}
