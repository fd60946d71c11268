// Serves the fixtures in this folder on a free port of loopback and prints the port. Ends when stdin is closed, so that it never
// outlives the test that started it.
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const installed = createRequire(join(process.argv[2], "package.json"));
const { LLMock } = await import(pathToFileURL(installed.resolve("@copilotkit/aimock")));

const mock = new LLMock({ host: "127.0.0.1", port: 0, chunkSize: 8, logLevel: "silent" });
mock.loadFixtureFile(join(here, "fixtures.json"));
await mock.start();
console.log(mock.port);

process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
