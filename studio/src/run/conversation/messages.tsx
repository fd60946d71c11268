// Messages of a conversation: a role, the text, and tool calls folded with their results. Texts are text nodes, never HTML.

import { isObject, parse, stringify } from "../../data/json";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { FoldedCall, MessageItem } from "../../data/conversation";
import type { Json, Message } from "../../types";
import { brief, contentText, count, iso, plural, time } from "../../ui/text/format";
import { JsonTree } from "../../ui/text/json";

const ROLES: { [role: string]: string } = { system: "System", user: "User", assistant: "Assistant", tool: "Tool" };

export function MessageCard(props: { item: MessageItem; calls?: FoldedCall[]; note?: ComponentChildren; children?: ComponentChildren }) {
  const { item, calls, note } = props;
  const { message } = item;
  const text = contentText(message.content);
  return (
    <article class={`message ${message.role}`} aria-label={`${ROLES[message.role] ?? message.role} message${item.index === undefined ? "" : ` ${item.index}`}`}>
      <header>
        <span class="role">{ROLES[message.role] ?? message.role}</span>
        {message.pin && <span class="badge">pinned</span>}
        {note}
        <span class="spring" />
        <span class="dim meta">
          {item.index !== undefined && `#${item.index}`} {item.tokens !== undefined && plural(item.tokens, "token")}{" "}
          {item.at !== undefined && (
            <time dateTime={iso(item.at)} title={iso(item.at)}>
              {time(item.at)}
            </time>
          )}
        </span>
      </header>
      {props.children ?? <LongText text={text} isJson={message.role === "tool"} />}
      {(calls ?? (message.toolCalls ?? []).map((call): FoldedCall => ({ call }))).map((one, at) => (
        <CallRow key={at} folded={one} />
      ))}
    </article>
  );
}

function CallRow({ folded: { call, result } }: { folded: FoldedCall }) {
  return (
    <details class="call">
      <summary>
        <span aria-hidden="true">⚙ </span>
        <code>{call.name}</code> <span class="dim">{brief(call.arguments, 100)}</span>
        {result && <span class="dim"> → {brief(contentText(result.message.content), 80)}</span>}
      </summary>
      <JsonTree value={call.arguments} name="arguments" />
      {result && (
        <div class="result">
          <span class="json-key">result: </span>
          <LongText text={contentText(result.message.content)} isJson />
        </div>
      )}
    </details>
  );
}

const FOLD = 1_500;

/** The object or list that a text is as JSON. */
function structureOf(text: string): object | undefined {
  try {
    const value = parse(text) as unknown;
    return Array.isArray(value) || isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A text that is folded after 1,500 characters; a text that is JSON is a tree. */
export function LongText({ text, isJson }: { text: string; isJson?: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const value = isJson ? structureOf(text) : undefined;
  if (value) return <JsonTree value={value} open={false} />;
  if (text === "") return null;
  const isLong = text.length > FOLD * 1.2;
  return (
    <div class="text">
      {isLong && !isOpen ? `${text.slice(0, FOLD)}…` : text}
      {isLong && (
        <>
          {" "}
          <button class="link" onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Show less" : `Show all ${count(text.length)} characters`}
          </button>
        </>
      )}
    </div>
  );
}

const asItems = (messages: Message[]): MessageItem[] => messages.map((message, index) => ({ kind: "message", message, index }));

const PAGE = 100;

/** A list of messages; the last ones first if it is long. */
export function MessageList({ messages, noteOf }: { messages: Message[]; noteOf?: (index: number) => ComponentChildren }) {
  const [shown, setShown] = useState(PAGE);
  const items = asItems(messages);
  const hidden = Math.max(0, items.length - shown);
  return (
    <div class="messages">
      {hidden > 0 && (
        <button class="fold" onClick={() => setShown(shown + PAGE * 4)}>
          {plural(hidden, "earlier message")}
        </button>
      )}
      {items.slice(hidden).map((item) => (
        <MessageCard key={item.index} item={item} note={noteOf?.(item.index!)} />
      ))}
    </div>
  );
}

/** A message as text with its role, for comparisons byte by byte. */
export function plainMessage(message: Message): string {
  const calls = (message.toolCalls ?? []).map((call) => `call ${call.name} ${stringify(call.arguments as Json)}\n`);
  const of = message.toolCallId ? ` ${message.toolCallId}` : "";
  return `[${message.role}${of}]\n${contentText(message.content)}\n${calls.join("")}`;
}
