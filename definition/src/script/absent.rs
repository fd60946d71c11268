//! Names that exist in other JavaScript environments but not here, and their replacements.

/// Returns advice for a missing name, such as `fetch`, in an expression or the code of a node, or in a script workflow.
pub fn instead_of(name: &str, is_workflow: bool) -> Option<&'static str> {
    if is_workflow && let Some(advice) = instead_in_workflow(name) {
        return Some(advice);
    }
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" | "Request" | "Headers" => {
            "a script has no network access: call an HTTP tool from a TOOL node, or let an LLM node call it"
        }
        "require" | "import" | "module" | "exports" => {
            "a script cannot load modules: write the code in `code`, or register a function and name it in the CODE node's `function`"
        }
        "process" | "Deno" | "Bun" | "fs" | "path" | "os" | "child_process" | "__dirname" | "__filename" => {
            "a script has no access to files or processes: pass the data as input, or call a tool"
        }
        "setTimeout"
        | "setInterval"
        | "setImmediate"
        | "clearTimeout"
        | "clearInterval"
        | "queueMicrotask"
        | "requestAnimationFrame" => "a script has no timers: wait with a WAIT node",
        "performance" => "a script has no clock: pass the time as input",
        "crypto" => "a script has no random numbers: pass them as input, or give the run a seed for Math.random",
        "eval" | "Function" => "a script cannot compile strings to code: write the code out",
        "window" | "document" | "localStorage" | "sessionStorage" | "navigator" | "location" | "alert" | "prompt" => {
            "a script does not run in a browser: reach people and other services through nodes and tools"
        }
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
        "self" => "use `input`, `variables` and `nodes`",
        _ => return None,
    })
}

/// Returns advice for a missing name that host functions of a script workflow replace.
fn instead_in_workflow(name: &str) -> Option<&'static str> {
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" | "Request" | "Headers" => {
            "a script has no network access: call an HTTP tool with `tool(name, args)`"
        }
        "require" | "import" | "module" | "exports" => "a script cannot load modules: write the code into the script",
        "process" | "Deno" | "Bun" | "fs" | "path" | "os" | "child_process" | "__dirname" | "__filename" => {
            "a script has no access to files or processes: read the input from `args`, or call `tool(name, args)`"
        }
        "setTimeout" | "setInterval" | "setImmediate" | "requestAnimationFrame" => {
            "a script has no timers: wait with `await sleep(milliseconds)`"
        }
        "performance" => "measure with `Date.now()`, whose values are recorded",
        "input" => "the input is `args`",
        "variables" | "nodes" => "a script has no graph: keep values in `const` and `let`",
        "prompt" | "alert" | "confirm" => "ask a person with `await ask(question)`",
        _ => return None,
    })
}
