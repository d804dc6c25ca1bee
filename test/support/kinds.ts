import type { Arbitrary } from "fast-check";

import type { FieldKind, FieldValue } from "../../src/plant/plant.ts";
import { anyText } from "./json_values.ts";
import type { Json } from "./written_json.ts";

/** What the tests know of a kind of fields. */
interface TestKind {
  /** What a plant keeps of a member of its JSON; `undefined` if it cannot be stored. */
  kept(value: Json | undefined): FieldValue | undefined;

  /** Members as JSON, mostly good. */
  readonly json: Arbitrary<string>;
}

/** The kinds of fields, implemented a second time and differently from the service. */
export const TEST_KINDS: Readonly<Record<FieldKind, TestKind>> = {
  text: {
    kept: (value) => (isStorable(value) ? value : undefined),
    json: anyText,
  },
};

function isStorable(value: Json | undefined): value is string {
  // A lone surrogate does not come back from UTF-8.
  return (
    typeof value === "string" && !value.includes("\0") && Buffer.from(value).toString() === value
  );
}
