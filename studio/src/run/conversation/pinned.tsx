// The pinned context as a request contained it.

import type { RequestDetail, RequestItem } from "../../types";
import { plural } from "../../ui/text/format";
import { useResource } from "../../ui/resource";
import { MessageList } from "./messages";
import type { OpenRun } from "../model/open";

export function PinnedMessages({ run, item, isLatest }: { run: OpenRun; item: RequestItem | undefined; isLatest?: boolean }) {
  const detail = useResource<RequestDetail>(item && run.path(`/requests/${encodeURIComponent(item.effectId)}`)).data.value;
  const pinned = item && detail?.pinned;
  if (!pinned) return <p class="dim">No request at this position has a pinned context.</p>;
  const { insertedAt, count } = pinned;
  return (
    <>
      <p class="dim">
        {isLatest && detail.prefix?.reason === "pinned" && <span class="badge change">Δ moved or changed</span>} {plural(count, "section")} in the request of {detail.nodeId}, before message {insertedAt}.
      </p>
      <MessageList messages={detail.request.messages.slice(insertedAt, insertedAt + count)} />
    </>
  );
}
