// Builds ../service/studio/{studio.js,more.js,studio.css,index.html}. Equal sources give equal bytes: no hashes of time or path, and esbuild's version
// is fixed by package-lock.json.
//
// `studio.js` has everything that a first page needs: the list of runs, and a run with all its panes. `more.js` has what `src/more.ts`
// exports, and is loaded when such a view or form is first shown. It uses the modules of `studio.js` through a list of their exports.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { minify } from "terser";

/** Most bytes, as gzip, of what a first page loads: script, style and document. */
export const LIMIT = 60_000;
/** Most bytes, as gzip, of the script that is loaded when it is first needed. */
export const MORE_LIMIT = 20_000;
/** Styles in the order of their precedence. */
const STYLES = "run/graph/graph.css run/timeline/timeline.css run/panes.css views/views.css style.css";
const root = dirname(fileURLToPath(import.meta.url));
const source = join(root, "src");
const outputs = process.argv.find((a) => a.startsWith("--out="))?.slice(6) ?? join(root, "../service/studio");
/** The name under which `more.js` finds the exports of `studio.js`. */
const SHARED = "pirnStudio";
const options = {
  absWorkingDir: root,
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
  logLevel: "warning",
  write: false,
  define: { "process.env.NODE_ENV": '"production"', MORE: '"./more.js?v=VERSION"' },
  plugins: [{ name: "more", setup: (at) => at.onResolve({ filter: /^\.\/more\.js/ }, ({ path }) => ({ path, external: true })) }],
};
const imports = `${STYLES} main.tsx`.trim().split(/\s+/).map((path) => `import "./${path}";`);

/** Path of a module without its extension, relative to `src`, or the name of a package. */
const nameOf = (path) => relative("src", path).replace(/\.tsx?$/, "");

/** Which exports of the modules in `studio.js` the modules of `more.js` import: `module name`, sorted. */
async function sharedNames(own, shared) {
  const found = new Set(["signals h", "signals Fragment"]);
  for (const path of own) {
    const text = await readFile(join(root, path), "utf8");
    for (const [, names, from] of text.matchAll(/^import \{([^}]*)\} from "([^"]+)"/gm)) {
      const module = from.startsWith(".") ? nameOf(relative(root, join(root, dirname(path), from))) : from;
      if (from.startsWith(".") && !shared.has(module)) continue;
      for (const name of names.split(",").map((one) => one.trim())) if (name && !name.startsWith("type ")) found.add(`${module} ${name}`);
    }
  }
  return [...found].sort();
}

/** Replaces the modules that `studio.js` has by their exports there. */
function fromStudio(shared, names, version) {
  const list = names.map((_, i) => `s${i}`);
  return {
    name: "shared",
    setup(at) {
      at.onResolve({ filter: /^(\.|preact)/ }, ({ path, resolveDir, namespace }) => {
        const module = path.startsWith(".") ? nameOf(relative(root, join(resolveDir, path))) : path;
        return namespace === "file" && (shared.has(module) || !path.startsWith(".")) ? { path: module, namespace: "shared" } : undefined;
      });
      at.onResolve({ filter: /^list$/ }, () => ({ path: "list", namespace: "shared" }));
      at.onLoad({ filter: /.*/, namespace: "shared" }, ({ path }) => ({
        contents:
          path === "list"
            ? `const [version, ${list}] = globalThis.${SHARED};
               if (version !== "${version}") throw new Error("the service has another version of the page");
               export { ${list} };`
            : `export { ${names.flatMap((name, i) => (name.startsWith(`${path} `) ? [`s${i} as ${name.split(" ")[1]}`] : []))} } from "list";`,
      }));
    },
  };
}

const entry = (contents) => ({ contents, resolveDir: source, sourcefile: "studio.ts", loader: "ts" });
const textOf = ({ outputFiles }, name) => outputFiles.find(({ path }) => path.endsWith(name)).text;
const modulesOf = ({ metafile }) => Object.keys(metafile.inputs).filter((path) => path.startsWith("src/"));

/** A second pass saves 4 % of the compressed size. A read of a signal's value subscribes to it: getters have side effects. */
async function smaller(script) {
  const { code } = await minify(script, {
    module: true,
    ecma: 2022,
    compress: { passes: 3, unsafe_arrows: true, pure_getters: false },
    format: { comments: false },
  });
  return code;
}

/** Returns the texts of the files by their names. */
export async function bundle() {
  const own = await build({ ...options, stdin: entry(imports.join("\n")), outfile: "studio.js", metafile: true });
  const shared = new Set(modulesOf(own).map(nameOf));
  // It is injected into both scripts.
  shared.delete("jsx");
  const all = await build({ ...options, entryPoints: ["src/more.ts"], outfile: "more.js", metafile: true });
  const names = await sharedNames(modulesOf(all).filter((path) => !shared.has(nameOf(path))), shared);
  const version = createHash("sha256").update(names.join("\n")).digest("hex").slice(0, 8);
  const list = names.map((name, i) => `import { ${name.split(" ")[1]} as s${i} } from "${/^preact/.test(name) ? "" : "./"}${name.split(" ")[0]}";`);
  const contents = [...imports, ...list, `(globalThis as any).${SHARED} = ["${version}", ${names.map((_, i) => `s${i}`)}];`].join("\n");
  const studio = await build({ ...options, stdin: entry(contents), outfile: "studio.js" });
  const rest = await build({ ...options, entryPoints: ["src/more.ts"], outfile: "more.js", plugins: [fromStudio(shared, names, version)] });
  const more = await smaller(textOf(rest, "more.js"));
  const hash = createHash("sha256").update(more).digest("hex").slice(0, 16);
  return {
    "studio.js": (await smaller(textOf(studio, "studio.js"))).replace("VERSION", hash),
    "more.js": more,
    "studio.css": textOf(studio, "studio.css"),
    "index.html": await readFile(join(source, "index.html"), "utf8"),
  };
}

async function write() {
  await mkdir(outputs, { recursive: true });
  const files = await bundle();
  const size = (name) => gzipSync(files[name], { level: 9 }).length;
  for (const [name, text] of Object.entries(files)) await writeFile(join(outputs, name), text);
  const [script, style, page, more] = ["studio.js", "studio.css", "index.html", "more.js"].map(size);
  const total = script + style + page;
  console.log(`studio.js ${script}, studio.css ${style}, index.html ${page}: ${total} of ${LIMIT} bytes as gzip; more.js ${more} of ${MORE_LIMIT}`);
  if (total > LIMIT || more > MORE_LIMIT) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await write();
  if (process.argv.includes("--watch")) {
    const { watch } = await import("node:fs");
    let timer;
    watch(source, { recursive: true }, () => {
      clearTimeout(timer);
      timer = setTimeout(() => write().catch(() => {}), 100);
    });
  }
}
