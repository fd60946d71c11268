// A slider over the events of the run, with the position of the cursor in steps and time.

import { count, duration, time } from "../ui/text/format";
import type { OpenRun } from "./model/open";

export function Scrubber({ run }: { run: OpenRun }) {
  void run.version.value;
  const { model, cursor } = run;
  const position = cursor.position.value;
  const live = cursor.sequence.value === undefined;
  const max = model.events.length;
  const now = model.countAt(position);
  const at = model.timeAt(position);
  const step = cursor.step.value;
  const last = run.steps.value?.list.at(-1)?.step;
  const text = `${step === undefined ? `event ${count(now)} of ${count(max)}` : `step ${count(step)} of ${count(last)}`}, +${duration(at - model.startAt)}`;
  return (
    <div class="scrubber">
      <button class="icon" aria-label="One step back" title="One step back (←)" onClick={() => cursor.by(-1)} disabled={now <= 1}>◂</button>
      <button class="icon" aria-label="One step forward" title="One step forward (→)" onClick={() => cursor.by(1)} disabled={live}>▸</button>
      <input
        type="range"
        min={1}
        max={Math.max(1, max)}
        value={now}
        aria-label="Position in the run"
        aria-valuetext={text}
        onInput={(e) => {
          const index = Number(e.currentTarget.value);
          cursor.sequence.value = index >= max ? undefined : model.events[index - 1]?.sequence;
        }}
      />
      <span class="position" title={time(at)}>{text}</span>
      <button class={`follow ${live ? "on" : ""}`} aria-pressed={live} onClick={() => cursor.move({ sequence: live ? position : undefined })}>
        {run.ended.value ? "End" : "Live"}
      </button>
    </div>
  );
}
