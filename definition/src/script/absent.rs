//! Names that exist in other JavaScript environments but not here, and their replacements.

/// Returns advice for a missing name, such as `fetch`: in a script workflow, or else in an expression or the code of a node.
pub fn instead_of(name: &str, is_workflow: bool) -> Option<&'static str> {
    let either = |of_node, of_workflow| if is_workflow { of_workflow } else { of_node };
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" | "Request" | "Headers" => either(
            "a script has no network access: call an HTTP tool from a TOOL node, or let an LLM node call it",
            "a script has no network access: call an HTTP tool with `tool(name, args)`",
        ),
        "require" | "import" | "module" | "exports" => either(
            "a script cannot load modules: write the code in `code`, or register a function and name it in the CODE node's `function`",
            "a script cannot load modules: write the code into the script",
        ),
        "process" | "Deno" | "Bun" | "fs" | "path" | "os" | "child_process" | "__dirname" | "__filename" => either(
            "a script has no access to files or processes: pass the data as input, or call a tool",
            "a script has no access to files or processes: read the input from `args`, or call `tool(name, args)`",
        ),
        "setTimeout"
        | "setInterval"
        | "setImmediate"
        | "clearTimeout"
        | "clearInterval"
        | "queueMicrotask"
        | "requestAnimationFrame" => either(
            "a script has no timers: wait with a WAIT node",
            "a script has no timers: wait with `await sleep(milliseconds)`",
        ),
        "performance" => either(
            "a script has no clock: pass the time as input",
            "measure with `Date.now()`, whose values are recorded",
        ),
        "crypto" => "a script has no random numbers: pass them as input, or give the run a seed for Math.random",
        "eval" | "Function" => "a script cannot compile strings to code: write the code out",
        "alert" | "prompt" => either(BROWSER, "ask a person with `await ask(question)`"),
        "window" | "document" | "localStorage" | "sessionStorage" | "navigator" | "location" => BROWSER,
        "global" => "`globalThis` is the global object",
        "Buffer" | "TextEncoder" | "TextDecoder" => "a script has no text encoders: use Uint8Array, `btoa` and `atob`",
        "structuredClone" => "copy with JSON.parse(JSON.stringify(value))",
        "Intl"
        | "URL"
        | "URLSearchParams"
        | "WebAssembly"
        | "Worker"
        | "Proxy"
        | "SharedArrayBuffer"
        | "Atomics"
        | "FinalizationRegistry"
        | "WeakRef" => "it is not available in scripts: the reference of expressions lists the globals",
        "self" => either("use `input`, `variables` and `nodes`", "the input is `args`"),
        "input" if is_workflow => "the input is `args`",
        "variables" | "nodes" if is_workflow => "a script has no graph: keep values in `const` and `let`",
        "confirm" if is_workflow => "ask a person with `await ask(question)`",
        _ => return None,
    })
}

const BROWSER: &str = "a script does not run in a browser: reach people and other services through nodes and tools";
