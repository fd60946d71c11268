// Rules of the source and of the bundle.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { gzipSync } from "node:zlib";
import { LIMIT, SHORTENED } from "../build.mjs";
import { root } from "./server.mjs";

const studio = join(root, "studio");

it("no text becomes HTML", async () => {
  for (const entry of await readdir(join(studio, "src"), { recursive: true })) {
    if (!/\.tsx?$/.test(entry)) continue;
    const source = await readFile(join(studio, "src", entry), "utf8");
    assert.doesNotMatch(source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|dangerouslySet/, entry);
  }
});

it("the committed page is not larger than its bound, and has no inline script or style", async () => {
  const files = await Promise.all(["index.html", "studio.js", "studio.css"].map((name) => readFile(join(studio, "dist", name))));
  const size = files.reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0);
  assert.ok(size <= LIMIT, `${size} bytes`);
  const page = files[0].toString();
  assert.doesNotMatch(page, /<style|style=|<script(?![^>]*src=)|javascript:/);
  assert.doesNotMatch(page + files[1], /https?:\/\/(?!www\.w3\.org\/)/);
});

it("the lock file names no registry", async () => {
  assert.doesNotMatch(await readFile(join(studio, "package-lock.json"), "utf8"), /"resolved"/);
});

it("the bundle shortens no name of the API", async () => {
  const api = (await readFile(join(studio, "src/types.ts"), "utf8")) + (await readFile(join(root, "docs/reference/events.md"), "utf8"));
  const known = new Set(api.match(/\w+/g));
  const strings = new Set();
  for (const entry of await readdir(join(studio, "src"), { recursive: true })) {
    if (!/\.tsx?$/.test(entry)) continue;
    const source = (await readFile(join(studio, "src", entry), "utf8")).replace(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, "");
    for (const [, text] of source.matchAll(/["'`]([\w]+)["'`]/g)) strings.add(text);
  }
  for (const name of SHORTENED) {
    // Words of descriptions are no names.
    assert.ok(!known.has(name) || ["held", "kept", "folded", "inherited"].includes(name), `${name} is a name of the API`);
    assert.ok(!strings.has(name), `${name} is a string`);
  }
});
