// Offers a stdio server over streamable HTTP on loopback, with one process per session.
//
// node bridge.mjs INSTALLED PORT PROGRAM ARGUMENTS...
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , servers, port, command, ...args] = process.argv;
const installed = createRequire(join(servers, "package.json"));
const load = (name) => import(pathToFileURL(installed.resolve(name)));
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");

const sessions = new Map();

async function open() {
  const inner = new StdioClientTransport({ command, args, env: process.env });
  const outer = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, outer),
  });
  outer.onmessage = (message) => inner.send(message);
  // A client may have disconnected; the other sessions are not affected.
  inner.onmessage = (message) => outer.send(message).catch((error) => console.error(error.message));
  inner.onclose = () => outer.close();
  await inner.start();
  return outer;
}

createServer(async (request, response) => {
  const id = request.headers["mcp-session-id"];
  if (id && !sessions.has(id)) {
    response.writeHead(404).end();
    return;
  }
  const session = id ? sessions.get(id) : await open();
  await session.handleRequest(request, response);
}).listen(Number(port), "127.0.0.1", () => console.error("listening"));
