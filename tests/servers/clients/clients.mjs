// Third-party clients against a service: AG-UI's agent (which checks the order of events), the AI SDK's chat transport,
// and MCP's TypeScript client. Prints the data that each has received, as JSON.
//
// node clients.mjs INSTALLED agui URL | agui-resume URL ANSWER | agui-tools URL TOOLS | chat URL | chat-tools URL TOOLS | mcp-http URL |
//   mcp-stdio PIRN FILE
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , servers, client, ...rest] = process.argv;
const installed = createRequire(join(servers, "package.json"));
const load = (name) => import(pathToFileURL(installed.resolve(name)));
const print = (value) => console.log(JSON.stringify(value));

async function agui(url) {
  const { HttpAgent } = await load("@ag-ui/client");
  const agent = new HttpAgent({ url, threadId: "t1", initialMessages: [{ id: "m1", role: "user", content: "time?" }] });
  const types = [];
  let failure = null;
  const { result } = await agent.runAgent({ runId: "r1" }, {
    onEvent: ({ event }) => { types.push(event.type); },
    onRunFailed: ({ error }) => { failure = String(error); },
  });
  print({ types, failure, result, state: agent.state, messages: agent.messages });
}

// Answers the first interrupt and reads the events of the resumed run.
async function aguiResume(url, payload) {
  const { HttpAgent } = await load("@ag-ui/client");
  const agent = new HttpAgent({ url, threadId: "t1", initialMessages: [{ id: "m1", role: "user", content: "go" }] });
  const finished = [];
  let failure = null;
  const hear = {
    onEvent: ({ event }) => { if (event.type === "RUN_FINISHED") finished.push(event); },
    onRunFailed: ({ error }) => { failure = String(error); },
  };
  await agent.runAgent({ runId: "r1" }, hear);
  const [interrupt] = finished[0].outcome.interrupts;
  const resume = [{ interruptId: interrupt.id, status: "resolved", payload: JSON.parse(payload) }];
  const { result } = await agent.runAgent({ runId: "r2", resume }, hear);
  print({ finished, failure, result, messages: agent.messages });
}

async function chat(api) {
  const { DefaultChatTransport, readUIMessageStream } = await load("ai");
  const transport = new DefaultChatTransport({ api });
  const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "time?" }] }];
  const stream = await transport.sendMessages({ chatId: "c1", messages, trigger: "submit-message" });
  const failures = [];
  let last = null;
  const read = readUIMessageStream({ stream, onError: (error) => failures.push(String(error)), terminateOnError: true });
  for await (const message of read) last = message;
  print({ message: last, failures });
}

// Offers tools, and executes their calls until the run has a result.
async function aguiTools(url, tools) {
  const { HttpAgent } = await load("@ag-ui/client");
  const agent = new HttpAgent({ url, threadId: "t1", initialMessages: [{ id: "m1", role: "user", content: "go" }] });
  const names = new Set(JSON.parse(tools).map((tool) => tool.name));
  const executed = [];
  let failure = null;
  let result = null;
  for (let run = 1; run <= 5 && result === null && failure === null; run += 1) {
    const ended = await agent.runAgent({ runId: `r${run}`, tools: JSON.parse(tools) }, {
      onRunFailed: ({ error }) => { failure = String(error); },
    });
    result = ended.result ?? null;
    const answered = new Set(agent.messages.map((message) => message.toolCallId));
    const open = agent.messages.flatMap((message) => message.toolCalls ?? [])
      .filter((call) => names.has(call.function.name) && !answered.has(call.id));
    for (const call of open) {
      executed.push(call.function.name);
      agent.addMessage({ id: `t-${call.id}`, role: "tool", toolCallId: call.id, content: "Oslo" });
    }
  }
  print({ executed, failure, result, messages: agent.messages });
}

// A chat as a page has it: it executes the calls of its tools, and sends its messages again when every call has a result.
async function chatTools(api, tools) {
  const { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } = await load("ai");
  class Chat extends AbstractChat {}
  const state = {
    status: "ready",
    error: undefined,
    messages: [],
    pushMessage: (message) => { state.messages = state.messages.concat(message); },
    popMessage: () => { state.messages = state.messages.slice(0, -1); },
    replaceMessage: (index, message) => { state.messages = state.messages.with(index, message); },
    snapshot: (value) => structuredClone(value),
  };
  const executed = [];
  let failure = null;
  let finish;
  const finished = new Promise((resolve) => { finish = resolve; });
  const chat = new Chat({
    id: "c1",
    state,
    transport: new DefaultChatTransport({ api, body: { tools: JSON.parse(tools) } }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) => {
      if (toolCall.dynamic) return;
      executed.push(toolCall.toolName);
      // Not awaited: the chat would wait for itself.
      chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: "Oslo" });
    },
    onError: (error) => { failure = String(error); finish(); },
    onFinish: ({ message }) => {
      if (message.parts.at(-1)?.text === "you are in Oslo") finish();
    },
  });
  await chat.sendMessage({ text: "go" });
  await finished;
  print({ executed, failure, messages: state.messages });
}

async function mcp(transport) {
  const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
  const client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
  const { tools } = await client.listTools();
  const progress = [];
  const called = await client.callTool({ name: "greet", arguments: { name: "Ada" } }, undefined, {
    onprogress: (told) => progress.push(told),
  });
  const refused = await client.callTool({ name: "greet", arguments: { name: 7 } });
  const unknown = await client.callTool({ name: "none", arguments: {} }).catch((error) => ({ code: error.code }));
  // A call that is cancelled: the workflow waits for an event that never comes.
  const controller = new AbortController();
  const toldWhileWaiting = [];
  const waiting = client.callTool({ name: "order", arguments: {} }, undefined, {
    signal: controller.signal,
    onprogress: (told) => {
      toldWhileWaiting.push(told);
      controller.abort("enough");
    },
  });
  const cancelled = await waiting.then(() => "answered", () => "cancelled");
  // The notice is sent asynchronously, and closing now would drop it.
  await client.ping();
  print({ tools, called, progress, toldWhileWaiting, refused, unknown, cancelled });
  await client.close();
}

switch (client) {
  case "agui":
    await agui(rest[0]);
    break;
  case "agui-resume":
    await aguiResume(rest[0], rest[1]);
    break;
  case "agui-tools":
    await aguiTools(rest[0], rest[1]);
    break;
  case "chat-tools":
    await chatTools(rest[0], rest[1]);
    break;
  case "chat":
    await chat(rest[0]);
    break;
  case "mcp-http": {
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    await mcp(new StreamableHTTPClientTransport(new URL(rest[0])));
    break;
  }
  case "mcp-stdio": {
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    await mcp(new StdioClientTransport({ command: rest[0], args: ["mcp", rest[1], "--log", "warn"], stderr: "inherit" }));
    break;
  }
}
