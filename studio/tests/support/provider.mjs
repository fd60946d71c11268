// A provider with OpenAI's protocol that reports no cached tokens. Each reply waits for `release()`.
import { createServer } from "node:http";

export async function provider() {
  const waiting = [];
  const called = [];
  const server = createServer(async (request, answer) => {
    for await (const part of request) void part;
    called.shift()?.();
    await new Promise((resolve) => waiting.push(resolve));
    answer.writeHead(200, { "Content-Type": "application/json" });
    const usage = { prompt_tokens: 3_000, completion_tokens: 2, total_tokens: 3_002, prompt_tokens_details: { cached_tokens: 0 } };
    answer.end(JSON.stringify({ id: "reply", object: "chat.completion", model: "small", choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "Noted." } }], usage }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    /** Resolves when the next request has arrived. */
    called: () => new Promise((resolve) => called.push(resolve)),
    release: () => waiting.splice(0).forEach((resolve) => resolve()),
    close: () => (server.closeAllConnections(), server.close()),
  };
}
