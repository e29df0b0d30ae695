// Puts what /docs and /redoc show into the Python package, beside our own files here: Swagger UI and Redoc as they are
// published, but for what Redoc would fetch from elsewhere.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const made = here("../../server/orsay/http/pages");
const modules = here("../node_modules");
const text = (path) => readFileSync(`${modules}/${path}`, "utf8");

/** Its only use is the logo beside "API docs by Redocly"; the words and the link stay. */
const LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const NOTHING = "data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22/%3E";

/** Without the last line, which names a map of the source that is not in the package. */
const script = (path) => text(path).replace(/\n?\/\/# sourceMappingURL=.*\s*$/, "\n");
const styles = (path) => text(path).replace(/\n?\/\*# sourceMappingURL=.*\*\/\s*$/, "\n");

rmSync(made, { recursive: true, force: true });
mkdirSync(made, { recursive: true });
for (const name of ["docs.js", "nonce.js", "redoc.js", "page.css"]) copyFileSync(here(name), `${made}/${name}`);
writeFileSync(`${made}/swagger-ui.js`, script("swagger-ui-dist/swagger-ui-bundle.js"));
writeFileSync(`${made}/swagger-ui.css`, styles("swagger-ui-dist/swagger-ui.css"));
const redoc = script("redoc/bundles/redoc.standalone.js");
const parts = redoc.split(LOGO);
if (parts.length !== 2) throw new Error(`redoc names ${LOGO} ${parts.length - 1} times; once was expected`);
writeFileSync(`${made}/redoc.standalone.js`, parts.join(NOTHING));

const version = (name) => JSON.parse(text(`${name}/package.json`)).version;
const fenced = (path) => `\`\`\`text\n${text(path).trim()}\n\`\`\`\n`;
writeFileSync(
  `${made}/licenses.md`,
  `# Licenses

## swagger-ui-dist - ${version("swagger-ui-dist")} (Apache-2.0)

${fenced("swagger-ui-dist/NOTICE")}
${fenced("swagger-ui-dist/LICENSE")}
Bundled with it:

${fenced("swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt")}
## redoc - ${version("redoc")} (MIT)

Changed: the address of a logo was replaced by an empty picture.

${fenced("redoc/LICENSE")}
Bundled with it:

${fenced("redoc/bundles/redoc.standalone.js.LICENSE.txt")}`,
);
