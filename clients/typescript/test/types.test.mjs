import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));

test("the types are those of docs/openapi.json", (t) => {
  const aside = mkdtempSync(join(tmpdir(), "fairlead-types-"));
  t.after(() => rmSync(aside, { recursive: true }));
  const docs = join(home, "../../docs");
  const made = join(aside, "types.gen.ts");
  execFileSync(process.execPath, [join(home, "scripts/generate.mjs"), join(docs, "openapi.json"), join(docs, "problems.md"), made]);
  assert.equal(readFileSync(join(home, "src/types.gen.ts"), "utf8"), readFileSync(made, "utf8"), "run scripts/generate.sh");
});

test("what is exported is there, with its types, and is all that is published", () => {
  const { exports, files, dependencies } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  for (const paths of Object.values(exports)) {
    for (const path of Object.values(paths)) assert.ok(existsSync(join(home, String(path))), String(path));
  }
  assert.equal(dependencies, undefined);
  assert.deepEqual(files, ["dist"]);
  const [pack] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: home, encoding: "utf8" }));
  const published = pack.files.map((/** @type {{path: string}} */ file) => file.path);
  const other = published.filter((/** @type {string} */ path) => !/^dist\/.*(\.js|\.d\.ts)$/.test(path));
  assert.deepEqual(other.sort(), ["LICENSE", "README.md", "package.json"].filter((name) => existsSync(join(home, name))).sort());
  assert.ok(published.includes("dist/index.js"));
});
