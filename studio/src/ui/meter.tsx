// Bars for shares: tokens against a limit, and the part of a request that the provider's cache can serve.

import { count, percent } from "./text/format";

export function Meter({ label, value, limit, unit = "tokens" }: { label: string; value: number; limit?: number | null; unit?: string }) {
  if (!limit) {
    return (
      <p class="meter">
        {label}: <strong>{count(value)}</strong> {unit}
      </p>
    );
  }
  const level = value > limit ? "over" : value >= 0.8 * limit ? "near" : "fine";
  const words = { over: "over the limit", near: "close to the limit", fine: "" }[level];
  return (
    <div class={`meter ${level}`}>
      <span>
        {label}: <strong>{count(value)}</strong> of {count(limit)} {unit} ({percent(value, limit)}){words && `, ${words}`}
      </span>
      <div class="bar" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={limit} aria-valuenow={Math.min(value, limit)} aria-valuetext={`${count(value)} of ${count(limit)} ${unit}`}>
        <span style={{ width: `${Math.min(100, (100 * value) / limit)}%` }} />
      </div>
    </div>
  );
}

/** The tokens of a request: equal to the start of an earlier request, or new; and what the provider reported as read from its cache. */
export function CacheBar({ total, stable, cached }: { total: number; stable: number; cached?: number | null }) {
  const share = total > 0 ? Math.min(1, stable / total) : 0;
  const reported = cached ? `, ${count(cached)} read from the provider's cache` : "";
  const text = `${count(stable)} of ${count(total)} tokens (${percent(stable, total)}) equal the previous request's start${reported}`;
  return (
    <span class="cache-bar" role="img" aria-label={text} title={text}>
      <span class="stable" style={{ width: `${100 * share}%` }} />
      {!!cached && total > 0 && <span class="cached" style={{ width: `${Math.min(100, (100 * cached) / total)}%` }} />}
    </span>
  );
}
