// The frame of every view: navigation, state of the connection, the request for a token, keyboard help.

import { useEffect, useRef, useState } from "preact/hooks";
import { canChange, connection, exportedRuns, info, isExport, loadInfo, setToken, tokenVersion, tokenWanted } from "./api";
import { go, href, route } from "./router";
import { Dialog, helpOpen, KeyHelp, useKeys } from "./ui/keys";
import { views } from "./views/registry";

export function Shell() {
  const token = tokenVersion.value;
  useEffect(() => {
    // An older service has no /info; then every change is offered, and the service decides.
    loadInfo().catch(() => undefined);
  }, [token]);
  const named = Object.entries(views).filter(([, view]) => view.label);
  useKeys([
    { key: "?", does: "Show or hide this help", action: () => (helpOpen.value = !helpOpen.value) },
    { key: "/", does: "To the first filter", action: () => document.querySelector<HTMLElement>("main input[type=search]")?.focus() },
    ...named.filter(([, view]) => view.key && !isExport).map(([name, view]) => ({ key: `g ${view.key}`, does: `Go to ${view.label!.toLowerCase()}`, action: () => go(href([name])) })),
  ]);
  const { view, args } = route.value;
  const shown = views[view];
  const title = [shown?.label ?? view, ...args.slice(0, 1)].join(" ");
  useEffect(() => {
    document.title = `${title} · Pirn Studio`;
  }, [title]);
  useFocusOnNavigation(`${view}/${args[0] ?? ""}`);
  const Component = shown && (args.length > 0 && shown.item ? shown.item : shown.component);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href={isExport ? href(["runs", exportedRuns[0] ?? ""]) : href(["runs"])}>
          <svg width="20" height="20" viewBox="0 0 16 16" aria-hidden="true">
            <rect width="16" height="16" rx="4" class="brand-box" />
            <path d="M4 4.5h8M4 8h8M4 11.5h8" class="brand-lines" />
          </svg>
          Pirn Studio
        </a>
        {!isExport && (
          <nav aria-label="Views">
            {named.map(([name, one]) => (
              <a key={name} href={href([name])} aria-current={view === name ? "page" : undefined}>
                {one.label}
              </a>
            ))}
          </nav>
        )}
        <span class="spring" />
        <Notices />
        <button class="icon" aria-label="Keyboard help" title="Keyboard help (?)" onClick={() => (helpOpen.value = true)}>
          ?
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        {Component ? <Component /> : <p class="empty">There is no view {view}.</p>}
      </main>
      {tokenWanted.value && <TokenDialog />}
      <KeyHelp />
    </>
  );
}

/** A change of the view moves the focus to it, so that a keyboard or a screen reader continues there. */
function useFocusOnNavigation(place: string) {
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else {
      const main = document.getElementById("main")!;
      main.focus({ preventScroll: true });
      main.scrollTop = 0;
    }
  }, [place]);
}

function Notices() {
  const known = info.value;
  return (
    <span class="notices" role="status">
      {connection.value === "lost" && <span class="notice bad">Disconnected; connecting again…</span>}
      {isExport && <span class="notice">Exported run</span>}
      {!isExport && !canChange() && <span class="notice">Read only</span>}
      {known && !known.store && <span class="notice" title="Start the service with --store FILE to keep runs">Runs in memory only</span>}
      {known && <span class="notice version">{known.version}</span>}
    </span>
  );
}

function TokenDialog() {
  const field = useRef<HTMLInputElement>(null);
  const [isRefused, setRefused] = useState(false);
  return (
    <Dialog label="Token" onClose={() => (tokenWanted.value = false)}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (field.current?.value) setRefused(!setToken(field.current.value));
        }}
      >
        <p>The service requires a token of its <code>--token-file</code>. The page keeps it until the tab is closed.</p>
        <label class="field">
          Token
          <input ref={field} type="password" autocomplete="off" autofocus required aria-invalid={isRefused} />
        </label>
        <p class="invalid" aria-live="polite">
          {isRefused && "The page cannot send this token: it has spaces, or characters other than ASCII letters, digits and punctuation. Copy the first word of its line in the token file."}
        </p>
        <div class="actions">
          <button class="primary">Continue</button>
        </div>
      </form>
    </Dialog>
  );
}
