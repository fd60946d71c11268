import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { load } from "./load.mjs";

const { anthropic, converted, curl, gemini, openai, shellQuoted } = await load("data/convert.ts");
const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "It's 5?" },
  { role: "assistant", content: "", toolCalls: [{ id: "c1", name: "clock", arguments: { zone: "CET" } }] },
  { role: "tool", toolCallId: "c1", content: "17:00" },
  { role: "assistant", content: "Yes." },
];

test("a conversation is written in the formats of other programs", () => {
  assert.deepEqual(openai(messages).messages[2].tool_calls[0].function, { name: "clock", arguments: '{"zone":"CET"}' });
  assert.equal(openai(messages).messages[3].tool_call_id, "c1");
  assert.equal(anthropic(messages).system, "Be brief.");
  assert.deepEqual(anthropic(messages).messages.map((message) => message.content[0].type), ["text", "tool_use", "tool_result", "text"]);
  assert.deepEqual(gemini(messages).contents[2].parts, [{ functionResponse: { name: "clock", response: { result: "17:00" } } }]);
  assert.deepEqual(JSON.parse(converted(messages, "pirn")), { messages });
});

test("a request as a command has no key and survives the shell", () => {
  const command = curl("m", { messages, tools: [{ name: "clock", parameters: { type: "object" } }], parameters: { temperature: 0 } });
  assert.match(command, /Bearer \$OPENAI_API_KEY/);
  const printed = execFileSync("sh", ["-c", command.replace(/^curl/, "printf '%s\\n'")], { encoding: "utf8" });
  const body = JSON.parse(printed.trimEnd().split("\n").at(-1));
  assert.equal(body.messages[1].content, "It's 5?");
  assert.equal(body.temperature, 0);
  assert.equal(shellQuoted("a'b"), `'a'\\''b'`);
});
