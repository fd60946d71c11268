// The page before a running service: node tests/dev.mjs [http://127.0.0.1:7474]
import { servePage } from "./support/server.mjs";

const target = process.argv[2] ?? "http://127.0.0.1:7474";
process.env.PAGE_PORT ??= "7480";
const page = await servePage(() => target);
console.log(page.url);
