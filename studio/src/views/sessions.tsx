// Sessions: the list, and of one session the conversation, the variables, its runs, and a start form.

import { useMemo, useState } from "preact/hooks";
import { canChange, query } from "../api";
import { rows } from "../data/conversation";
import { go, href, route } from "../router";
import type { JsonObject, Message, RunItem, RunList, SessionItem } from "../types";
import { count, plural, time } from "../ui/text/format";
import { JsonTree } from "../ui/text/json";
import { Dialog } from "../ui/keys";
import { Panel, Table } from "../ui/panel";
import { useChanges } from "../ui/changes";
import { Loaded, useResource } from "../ui/resource";
import { MessageCard } from "../run/conversation/messages";
import { RunTable } from "./run-table";
import { StartForm } from "./start";

export function Sessions() {
  const resource = useResource<{ sessions: SessionItem[] }>("/sessions");
  useChanges(resource);
  const [text, setText] = useState("");
  return (
    <div class="view">
      <h1>Sessions</h1>
      <Loaded resource={resource}>
        {({ sessions }) => {
          const shown = sessions.filter((session) => session.id.includes(text));
          if (sessions.length === 0) return <p class="empty">There are no sessions. A run that is started with a session creates it.</p>;
          return (
            <>
              <div class="filters">
                <label>
                  Text
                  <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
                </label>
                <span role="status" class="dim">
                  {plural(shown.length, "session")}
                </span>
              </div>
              <Table
                label="Table of sessions"
                columns={["Session", "#Version", "#Runs", "#Changed"]}
                rows={shown.slice(0, 1000).map((session) => [
                  <a href={href(["sessions", session.id])}>{session.id}</a>,
                  count(session.version),
                  count(session.runs),
                  time(session.updatedAt),
                ])}
              />
            </>
          );
        }}
      </Loaded>
    </div>
  );
}

interface SessionState {
  id: string;
  version: number;
  conversation: { messages: Message[] };
  variables: JsonObject;
}

export function Session() {
  const id = route.value.args[0]!;
  const session = useResource<SessionState>(`/sessions/${encodeURIComponent(id)}`);
  const runs = useResource<RunList>(query("/runs", { session: id, limit: 100 }));
  const isOwn = (run: RunItem) => run.session === id;
  useChanges(runs, 300, isOwn);
  useChanges(session, 300, isOwn);
  const [isStarting, setStarting] = useState(false);
  const last = runs.data.value?.runs[0]?.workflowId;
  return (
    <div class="view">
      <div class="view-title">
        <h1>
          <a class="quiet" href={href(["sessions"])}>
            Sessions
          </a>{" "}
          / {id}
        </h1>
        {canChange() && (
          <button class="primary" onClick={() => setStarting(true)}>
            Start a run in the session
          </button>
        )}
      </div>
      <Panel title="Runs">
        <Loaded resource={runs}>{(list) => <RunTable runs={list.runs} label={`Runs of ${id}`} />}</Loaded>
      </Panel>
      <Loaded resource={session}>
        {({ version, conversation, variables }) => (
          <>
            <Panel title={`Variables, version ${count(version)}`}>
              {Object.keys(variables).length === 0 ? <p class="dim">The session has no variables.</p> : <JsonTree value={variables} />}
            </Panel>
            <Panel title="Conversation">
              <Messages messages={conversation.messages} />
            </Panel>
          </>
        )}
      </Loaded>
      {isStarting && canChange() && (
        <Dialog label={`Start a run in ${id}`} wide onClose={() => setStarting(false)}>
          <StartForm workflow={last} session={id} onStarted={(run) => go(href(["runs", run]))} />
        </Dialog>
      )}
    </div>
  );
}

const PAGE = 100;

function Messages({ messages }: { messages: Message[] }) {
  const [shown, setShown] = useState(PAGE);
  const all = useMemo(() => rows(messages.map((message, index) => ({ kind: "message", message, index }))), [messages]);
  const hidden = Math.max(0, all.length - shown);
  if (all.length === 0) return <p class="dim">The conversation is empty.</p>;
  return (
    <div class="messages">
      {hidden > 0 && (
        <button class="fold" onClick={() => setShown(shown + PAGE * 4)}>
          {plural(hidden, "earlier message")}
        </button>
      )}
      {all.slice(hidden).map(({ item, calls }, at) => item.kind === "message" && <MessageCard key={hidden + at} item={item} calls={calls} />)}
    </div>
  );
}
