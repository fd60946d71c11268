// Loads a TypeScript module of the page into node.
import { build } from "esbuild";
import { join } from "node:path";
import { root } from "./server.mjs";

export async function loadModule(path) {
  const { outputFiles } = await build({ entryPoints: [join(root, "studio", path)], bundle: true, write: false, format: "esm", jsx: "automatic", jsxImportSource: "preact", absWorkingDir: join(root, "studio") });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);
}
