import { expect, setDefaultTimeout, test } from "bun:test";

import * as fc from "fast-check";

import { memoryStore } from "../../src/database/memory.ts";
import { groupCommit } from "../../src/group_commit/group_commit.ts";
import { fetchRequest, testApp, TOKEN } from "../support/app.ts";
import { bodyBytes, bodyText } from "../support/json_text.ts";
import { numberText, storableText, stringText } from "../support/json_values.ts";
import { goodRequest } from "../support/load.ts";
import { oracle, type Prediction, type WireRequest } from "../support/oracle.ts";
import { membersWith, OPTIONAL_TEXT } from "../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";
import { anyRequest, requestAtLimit } from "../support/requests.ts";
import { readError, readPlant } from "../support/responses.ts";
import { scaled } from "../support/scale.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

// A failure prints its seed and path.
const { TEST_SEED } = process.env;

const OPTIONS = { token: TOKEN, maxBodyBytes: 400 };

test.each<[what: string, requests: fc.Arbitrary<WireRequest>, runs: number]>([
  ["an id, however it is written", fc.tuple(numberText, storableText).map(plantText), 35],
  [
    "a name and a tag, however they are written",
    fc
      .tuple(fc.constant("1"), stringText, fc.option(stringText, { nil: undefined, freq: 1 }))
      .map(plantText),
    35,
  ],
  ["a body, whatever its members and their order", bodyText.map(posting), 50],
  ["bytes, whatever they are", bodyBytes.map((body) => ({ ...goodRequest(TOKEN), body })), 35],
  ["bodies around the limit", requestAtLimit(OPTIONS), 20],
  ["a request, whatever its path, method and headers", anyRequest(OPTIONS), 60],
])(
  "the app takes %s as the oracle does, in one piece or in chunks",
  async (_what, requests, runs) => {
    const cuts = fc.option(fc.array(fc.nat(), { maxLength: 5 }));
    const property = fc.asyncProperty(
      fc.array(fc.tuple(requests, cuts), { minLength: 1, maxLength: 25, size: "max" }),
      async (requests) => {
        const store = memoryStore();
        const plants = groupCommit(store);
        const app = testApp({ plants, maxBodyBytes: OPTIONS.maxBodyBytes });
        const { predict, stored } = oracle(OPTIONS);

        for (const [request, cuts] of requests) {
          const sent = fetchRequest(
            request,
            cuts === null ? {} : { chunks: cutAt(request.body, cuts) },
          );
          await compare(await app.fetch(sent), predict(request));
        }

        const kept = [...stored.values()];
        expect(await store.add(kept, { timeoutMs: 1_000 })).toEqual(kept.map(() => "present"));
      },
    );

    const numRuns = runs * scaled(1, 20);
    await fc.assert(property, {
      numRuns,
      ...(TEST_SEED !== undefined && { seed: Number(TEST_SEED) }),
    });
  },
);

function plantText([id = "", text = "", optional]: readonly (string | undefined)[]): WireRequest {
  const last = optional === undefined ? "" : `, "${OPTIONAL_TEXT}": ${optional}`;
  return posting(`{"id": ${id}, ${membersWith(text)}${last}}`);
}

async function compare(response: Response, prediction: Prediction): Promise<void> {
  if (!("error" in prediction)) {
    return expect(await readPlant(response)).toEqual(prediction);
  }
  const { status, error, message } = await readError(response);
  const { faults, ...expected } = prediction;
  expect({ status, error }).toEqual(expected);
  if (faults !== undefined) expect(fieldsIn(message)).toEqual([...faults]);
}

function fieldsIn(message: string): string[] {
  return [...new Set(Array.from(message.matchAll(/`(\w+)`/g), ([, field = ""]) => field))];
}

function posting(body: string): WireRequest {
  return goodRequest(TOKEN, body);
}

function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const ends = [...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].toSorted(
    (a, b) => a - b,
  );
  return ends.map((end, i) => bytes.slice(ends[i - 1] ?? 0, end));
}
