import css from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import script from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };
import icon from "swagger-ui-dist/favicon-32x32.png" with { type: "file" };
import type { DocsFiles } from "../http/docs.ts";

/** Swagger UI from the package, or from inside the executable, where Bun embeds what is imported as a file. */
export const swaggerUi: DocsFiles = {
  "swagger-ui.css": Bun.file(css),
  "swagger-ui-bundle.js": Bun.file(script),
  "favicon-32x32.png": Bun.file(icon),
};
