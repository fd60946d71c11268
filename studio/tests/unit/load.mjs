// Loads a TypeScript module of `src` for a unit test.
import { build } from "esbuild";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const source = join(dirname(fileURLToPath(import.meta.url)), "../../src");

/** Several modules share what they import. */
export async function load(...paths) {
  const result = await build({
    stdin: { contents: paths.map((path) => `export * from "./${path}";`).join("\n"), resolveDir: source },
    bundle: true,
    write: false,
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "silent",
  });
  return import(`data:text/javascript;base64,${Buffer.from(result.outputFiles[0].text).toString("base64")}`);
}
