// Builds dist/{studio.js,studio.css,index.html}. Equal sources give equal bytes: no hashes of time or path, and esbuild's version is
// fixed by package-lock.json.
import { build, context } from "esbuild";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { minify } from "terser";

const LIMIT = 60_000;
/** Properties of the page's own objects, which are shortened. tests/source.test.mjs checks that none is a name of the API or a string. */
export const SHORTENED =
  "visits visitsOf startAt endAt firstTokenAt startedBy stablePrefix held replyTokens metAt atNode computedBy threadList compressions setParents setRequests countAt sequenceAt variablesAt questionsAt visitsAt isFirst focusFirst focusable workflowShown toStep roots sheets gutter rowOf pauses explanation isRequired isOptional describedBy isInvalid beginsSentence kept lostIn inherited lastRequest isUsed firedTrigger childOfTrigger rowHeight rowClass onOpen onEvents onEnd onProblem folded"
    .split(" ");
const root = dirname(fileURLToPath(import.meta.url));
const outputs = process.argv.find((a) => a.startsWith("--out="))?.slice(6) ?? join(root, "dist");
const options = {
  absWorkingDir: root,
  entryPoints: { studio: "src/main.tsx" },
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "none",
  format: "esm",
  target: ["chrome111", "firefox113", "safari16.4"],
  // `h(...)` needs fewer bytes than the functions of the automatic transform. tsconfig.json would take precedence.
  tsconfigRaw: {},
  jsx: "transform",
  jsxFactory: "h",
  jsxFragment: "Fragment",
  inject: ["src/jsx.ts"],
  mangleProps: new RegExp(`^(${SHORTENED.join("|")})$`),
  outdir: outputs,
  logLevel: "warning",
  define: { "process.env.NODE_ENV": '"production"' },
};

if (process.argv[1] === fileURLToPath(import.meta.url)) await run();

async function run() {
  await mkdir(outputs, { recursive: true });
  await copyFile(join(root, "src/index.html"), join(outputs, "index.html"));
  if (process.argv.includes("--watch")) {
    await (await context(options)).watch();
  } else {
    await build(options);
    // A second pass saves 4 % of the compressed size. A read of a signal's value subscribes to it: getters have side effects.
    const script = join(outputs, "studio.js");
    const smaller = await minify(await readFile(script, "utf8"), {
      module: true,
      ecma: 2022,
      compress: { passes: 3, unsafe_arrows: true, pure_getters: false },
      format: { comments: false },
    });
    await writeFile(script, smaller.code);
    const sizes = await Promise.all(
      ["studio.js", "studio.css", "index.html"].map(async (name) => gzipSync(await readFile(join(outputs, name)), { level: 9 }).length),
    );
    const total = sizes.reduce((a, b) => a + b, 0);
    console.log(`studio.js ${sizes[0]}, studio.css ${sizes[1]}, index.html ${sizes[2]}: ${total} of ${LIMIT} bytes as gzip`);
    if (total > LIMIT) process.exit(1);
  }
}
