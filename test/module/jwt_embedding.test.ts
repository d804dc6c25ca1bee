import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";

import { guideProject } from "../support/guide_project.ts";
import { blocks } from "../support/guides.ts";
import { jwksServer, signed, signingKey } from "../support/jwt_provider.ts";
import { MODULE_RUNTIMES, NEWEST_COMPILER, skipsRuntimes } from "../support/module_runtimes.ts";
import { fern, jsonOf } from "../support/plants.ts";
import { TEST_TIMEOUT_MS } from "../support/program.ts";

setDefaultTimeout(TEST_TIMEOUT_MS);

const [tokens = ""] = blocks("A server of your own", "ts");
const [jwts = ""] = blocks("In your own program", "ts");

const skips = skipsRuntimes("the program of the guide to JWTs");

describe.skipIf(skips)("JWTs in a program of one's own", () => {
  let project: Awaited<ReturnType<typeof guideProject>>;
  beforeAll(async () => {
    project = await guideProject();
  });
  afterAll(() => project?.[Symbol.dispose]());

  test.each(MODULE_RUNTIMES)(
    "are accepted beside static tokens, as the guide says, on $name",
    async ({ name, run }) => {
      const key = await signingKey();
      await using provider = jwksServer(key);
      const claims = { iss: "https://id.example.com/", aud: "plant-store", exp: 32_503_680_000 };
      const bearers = [
        "a-token-of-the-greenhouse",
        await signed(key, claims),
        await signed(key, { ...claims, aud: "another" }),
        "unknown-token-0123456789",
      ];

      const post = `
        import { createApp, groupCommit, memoryStore } from "plant-store";
        const plants = groupCommit(memoryStore());
        const app = createApp({ plants, ready: async () => {}, authenticate });
        for (const token of ${JSON.stringify(bearers)}) {
          const headers = { authorization: "Bearer " + token, "content-type": "application/json" };
          const body = ${JSON.stringify(jsonOf(fern()))};
          const request = new Request("http://localhost/plants", { method: "POST", headers, body });
          console.log((await app.fetch(request)).status);
        }
        clearInterval(refreshing);
        clearInterval(refreshingKeys);
      `;
      const file = `jwts_${name.replace(" ", "_")}.ts`;
      const code = [tokens, jwts, post].join("\n");
      await project.write(file, code.replace("https://id.example.com/jwks", provider.url.href));
      const { exitCode, output } = await project.run([...run, file], {
        NODE_OPTIONS: "--disable-warning=ExperimentalWarning",
      });
      expect([exitCode, output]).toEqual([0, "200\n200\n401\n401\n"]);
    },
  );

  test.each(NEWEST_COMPILER)(
    "are in a program that TypeScript $version checks",
    async ({ command }) => {
      await project.write("typed.ts", [tokens, jwts].join("\n"));
      const options = { module: "nodenext", skipLibCheck: true, types: ["bun-types"] };
      const compiled = await project.compile(command, ["typed.ts"], options);
      expect(compiled).toEqual({ exitCode: 0, errors: [] });
    },
  );
});
