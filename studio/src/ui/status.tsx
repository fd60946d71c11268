// The status of a run, thread or node: a word, a symbol and a colour. The symbol alone is sufficient to tell them apart.

export interface Look {
  symbol: string;
  /** CSS class of the colour. */
  tone: string;
  word: string;
}

const LOOKS: { [status: string]: Look } = {
  COMPLETED: { symbol: "✓", tone: "t-ok", word: "completed" },
  RUNNING: { symbol: "▶", tone: "t-run", word: "running" },
  FAILED: { symbol: "✕", tone: "t-bad", word: "failed" },
  TIMEOUT: { symbol: "⧗", tone: "t-bad", word: "timed out" },
  CANCELLED: { symbol: "⊘", tone: "t-off", word: "cancelled" },
  WAITING: { symbol: "?", tone: "t-wait", word: "waiting" },
  PAUSED: { symbol: "‖", tone: "t-wait", word: "paused" },
  QUEUED: { symbol: "…", tone: "t-off", word: "queued" },
  UNFINISHED: { symbol: "◌", tone: "t-off", word: "unfinished" },
  PENDING: { symbol: "·", tone: "t-none", word: "not reached" },
};

export function look(status: string | null | undefined): Look {
  return LOOKS[status ?? "PENDING"] ?? { symbol: "•", tone: "t-off", word: (status ?? "").toLowerCase().replaceAll("_", " ") };
}

export function Status({ status, short }: { status: string; short?: boolean }) {
  const { symbol, tone, word } = look(status);
  return (
    <span class={`status ${tone}`} title={short ? word : undefined}>
      <span class="symbol" aria-hidden="true">
        {symbol}
      </span>
      <span class={short ? "sr" : undefined}>{word}</span>
    </span>
  );
}
