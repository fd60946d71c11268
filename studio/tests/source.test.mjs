// Rules of the source and of the bundle.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { gzipSync } from "node:zlib";
import { LIMIT, MORE_LIMIT } from "../build.mjs";
import { root } from "./support/server.mjs";

const studio = join(root, "studio");

it("no text becomes HTML", async () => {
  for (const entry of await readdir(join(studio, "src"), { recursive: true })) {
    if (!/\.tsx?$/.test(entry)) continue;
    const source = await readFile(join(studio, "src", entry), "utf8");
    assert.doesNotMatch(source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|dangerouslySet/, entry);
  }
});

it("every number keeps its digits: JSON is read and written by data/json.ts", async () => {
  for (const entry of await readdir(join(studio, "src"), { recursive: true })) {
    if (!/\.tsx?$/.test(entry) || entry.endsWith("json.ts")) continue;
    assert.doesNotMatch(await readFile(join(studio, "src", entry), "utf8"), /\bJSON\.(parse|stringify)\(|\.json\(\)/, entry);
  }
});

it("the committed page is not larger than its bounds, and has no inline script or style", async () => {
  const names = ["index.html", "studio.js", "studio.css", "more.js"];
  const files = await Promise.all(names.map((name) => readFile(join(studio, "../service/studio", name))));
  const sizes = files.map((file) => gzipSync(file, { level: 9 }).length);
  const more = sizes.pop();
  const first = sizes.reduce((sum, size) => sum + size, 0);
  assert.ok(first <= LIMIT, `${first} bytes`);
  assert.ok(more <= MORE_LIMIT, `${more} bytes`);
  const page = files[0].toString();
  assert.doesNotMatch(page, /<style|style=|<script(?![^>]*src=)|javascript:/);
  assert.doesNotMatch(page + files[1] + files[3], /https?:\/\/(?!www\.w3\.org\/)/);
});

it("the lock file names no registry", async () => {
  assert.doesNotMatch(await readFile(join(studio, "package-lock.json"), "utf8"), /"resolved"/);
});
