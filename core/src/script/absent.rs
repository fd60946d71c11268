//! Names that exist in other JavaScript environments but not here, and their replacements.

/// Returns advice for a missing name: `instead_of("fetch")`.
pub fn instead_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" | "Request" | "Headers" => {
            "a script reaches no network: call an HTTP tool from a TOOL node, or have an LLM node use it"
        }
        "require" | "import" | "module" | "exports" => {
            "a script loads no modules: write it out in `code`, or register a function and name it in the CODE node's `function`"
        }
        "process" | "Deno" | "Bun" | "fs" | "path" | "os" | "child_process" | "__dirname" | "__filename" => {
            "a script reaches no files and no process: pass what it needs in as input, or call a tool"
        }
        "setTimeout"
        | "setInterval"
        | "setImmediate"
        | "clearTimeout"
        | "clearInterval"
        | "queueMicrotask"
        | "requestAnimationFrame" => "a script has no timers: wait with a WAIT node",
        "performance" => "there is no clock in a script: pass the time in as input",
        "crypto" => {
            "there is no chance in a script: pass random values in as input, or give the run a seed for Math.random"
        }
        "eval" | "Function" => "text is not compiled to code in a script: write the code out",
        "window" | "document" | "localStorage" | "sessionStorage" | "navigator" | "location" | "alert" | "prompt" => {
            "a script runs in no browser: ask people and the outside through nodes and tools"
        }
        "global" => "`globalThis` is the global object",
        "Buffer" | "TextEncoder" | "TextDecoder" => {
            "there are no encoders in a script: use Uint8Array, `btoa` and `atob`"
        }
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
        | "WeakRef" => "it is no part of JavaScript here: the reference of expressions lists the globals",
        "self" => "use `input`, `variables` and `nodes`",
        _ => return None,
    })
}
