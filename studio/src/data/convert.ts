// Writes conversations in the formats of other programs, and a model request as a command line.

import { stringify } from "./json";
import type { Json, Message } from "../types";
import { contentText } from "../ui/text/format";

export type ConversationFormat = "pirn" | "openai" | "anthropic" | "gemini";

/** Converts messages to a format, as JSON text. */
export function converted(messages: Message[], format: ConversationFormat): string {
  const value = {
    pirn: () => ({ messages }),
    openai: () => openai(messages),
    anthropic: () => anthropic(messages),
    gemini: () => gemini(messages),
  };
  return `${stringify(value[format](), 2)}\n`;
}

/** Messages of the Chat Completions API. */
export function openai(messages: Message[]): { messages: unknown[] } {
  return {
    messages: messages.map(({ role, content: given, toolCalls, toolCallId }) => {
      const content = contentText(given);
      if (role === "tool") return { role, tool_call_id: toolCallId ?? "", content };
      if (!toolCalls?.length) return { role, content };
      const calls = toolCalls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.name, arguments: stringify(call.arguments) },
      }));
      return { role, content: content || null, tool_calls: calls };
    }),
  };
}

/** System text and messages of the Messages API: results of tools are blocks of a user message. */
export function anthropic(messages: Message[]): { system?: string; messages: { role: string; content: unknown[] }[] } {
  const found: { role: string; content: unknown[] }[] = [];
  const add = (role: string, blocks: unknown[]) => {
    if (!blocks.length) return;
    const last = found.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else found.push({ role, content: blocks });
  };
  const text = (content: string) => (content.trim() ? [{ type: "text", text: content }] : []);
  for (const { role, content: given, toolCalls, toolCallId } of messages) {
    const content = contentText(given);
    if (role === "tool") add("user", [{ type: "tool_result", tool_use_id: toolCallId ?? "", content }]);
    else if (role === "user") add("user", text(content));
    else if (role === "assistant") {
      const calls = (toolCalls ?? []).map((call) => ({ type: "tool_use", id: call.id, name: call.name, input: call.arguments }));
      add("assistant", [...text(content), ...calls]);
    }
  }
  const system = systemOf(messages);
  return system ? { system, messages: found } : { messages: found };
}

/** Contents of the Gemini API: calls and results are parts with the function's name. */
export function gemini(messages: Message[]): { systemInstruction?: unknown; contents: { role: string; parts: unknown[] }[] } {
  const names = new Map<string, string>();
  const found: { role: string; parts: unknown[] }[] = [];
  const add = (role: string, parts: unknown[]) => {
    if (!parts.length) return;
    const last = found.at(-1);
    if (last?.role === role) last.parts.push(...parts);
    else found.push({ role, parts });
  };
  for (const { role, content: given, toolCalls, toolCallId } of messages) {
    const content = contentText(given);
    if (role === "tool") {
      const name = names.get(toolCallId ?? "") ?? toolCallId ?? "";
      add("user", [{ functionResponse: { name, response: { result: content } } }]);
    } else if (role === "user") add("user", [{ text: content }]);
    else if (role === "assistant") {
      for (const call of toolCalls ?? []) names.set(call.id, call.name);
      const calls = (toolCalls ?? []).map((call) => ({ functionCall: { name: call.name, args: call.arguments } }));
      add("model", [...(content.trim() ? [{ text: content }] : []), ...calls]);
    }
  }
  const system = systemOf(messages);
  return system ? { systemInstruction: { parts: [{ text: system }] }, contents: found } : { contents: found };
}

const systemOf = (messages: Message[]): string =>
  messages
    .filter((message) => message.role === "system")
    .map((message) => contentText(message.content))
    .join("\n\n");

export interface SentRequest {
  messages: Message[];
  tools?: Json[];
  parameters?: Record<string, unknown>;
}

interface OfferedTool {
  name: string;
  description?: string;
  parameters?: unknown;
}

/** Quotes a text for a POSIX shell. */
export function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * A model request as a `curl` command for an API that is compatible with Chat Completions. The address and the key are variables of the
 * shell: the page does not know them.
 */
export function curl(model: string, request: SentRequest): string {
  const tools = ((request.tools ?? []) as unknown as OfferedTool[]).map(({ name, description, parameters }) => ({
    type: "function",
    function: { name, ...(description ? { description } : {}), parameters: parameters ?? { type: "object" } },
  }));
  const body = { model, ...openai(request.messages), ...(tools.length ? { tools } : {}), ...(request.parameters ?? {}) };
  return [
    `curl "$OPENAI_BASE_URL/chat/completions" \\`,
    `  -H "Authorization: Bearer $OPENAI_API_KEY" -H 'Content-Type: application/json' \\`,
    `  -d ${shellQuoted(stringify(body))}`,
  ].join("\n");
}
