// Builds dist/{studio.js,studio.css,index.html}. Equal sources give equal bytes: no hashes of time or path, and esbuild's version is
// fixed by package-lock.json.
import { build, context } from "esbuild";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { minify } from "terser";

/** The page is to have at most 60,000 bytes of gzip. It has more today: this bound keeps it from growing, and is to fall. */
export const LIMIT = 63_500;
/** Properties of the page's own objects, which are shortened. tests/source.test.mjs checks that none is a name of the API or a string. */
export const SHORTENED =
  "visits visitsOf startAt endAt firstTokenAt startedBy stablePrefix held replyTokens atNode threadList compressions setParents setRequests countAt sequenceAt variablesAt questionsAt visitsAt isFirst focusFirst focusable workflowShown toStep roots sheets gutter rowOf pauses isRequired isOptional describedBy isInvalid beginsSentence kept lostIn inherited lastRequest isUsed firedTrigger childOfTrigger rowHeight rowClass onOpen onEvents onEnd onProblem folded"
    .split(" ");
/** Styles in the order of their precedence. */
const STYLES = "run/graph.css run/timeline.css run/panes.css views/views.css style.css";
/**
 * An order of modules in which gzip, which looks back 32 KiB, finds more that it has seen: 1 % smaller than that of the imports. It was found
 * by trying; a module that is missing here takes the place of its import.
 */
const MODULES = `
  ui/schema-form.tsx run/request.tsx ui/status.tsx ui/surface.ts run/panes.ts run/scrubber.tsx run/sheets.ts run/graph.tsx
  views/questions.tsx data/facts.ts ui/format.ts views/registry.ts api.ts run/cursor.ts ui/json.tsx run/timeline-draw.ts
  signals.ts ui/meter.tsx run/events.tsx data/statistics.ts ui/list.tsx run/node-details.tsx data/charts.ts views/engine.tsx
  ui/question.tsx views/start.tsx reactive.ts views/workflows.tsx ui/panel.tsx run/compression.tsx run/model.ts
  views/sessions.tsx data/schema.ts run/messages.tsx views/runs.tsx router.ts run/digest.ts views/compare.tsx data/convert.ts
  run/view-href.ts run/calls.ts run/node-state.ts run/view.tsx run/strip.tsx run/timeline.tsx ui/text-width.ts
  run/conversation.tsx ui/polling.ts ui/keys.tsx ui/now.ts ui/diff.tsx data/diff.ts shell.tsx ui/bytes.ts ui/resource.tsx
  run/time-scale.ts views/run-table.tsx run/open.ts run/state.tsx data/conversation.ts run/actions.tsx
`;
const imports = `${STYLES} ${MODULES} main.tsx`.trim().split(/\s+/).map((path) => `import "./${path}";`).join("\n");
const root = dirname(fileURLToPath(import.meta.url));
const outputs = process.argv.find((a) => a.startsWith("--out="))?.slice(6) ?? join(root, "dist");
const options = {
  absWorkingDir: root,
  stdin: { contents: imports, resolveDir: join(root, "src"), sourcefile: "studio.ts", loader: "ts" },
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
  outfile: join(outputs, "studio.js"),
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
