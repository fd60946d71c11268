//! Consent to tool calls: the choice of calls that need it, and the prompt on the terminal.

use clap::ValueEnum;
use pirn::ToolConsent;
use pirn::tools::{Approval, ToolRegistry, Verdict};
use pirn_definition::definition::{BuiltInTool, json_from_str};
use serde_json::{Value, json};

use super::asking::{line_after, say};

/// Calls that need a person's consent.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(in crate::run) enum Approve {
    /// A question for each call of a tool with approval = "ask"
    Ask,
    /// A question for every call
    Each,
    /// No questions: every call runs
    None,
}

/// Configures which tool calls need consent. Returns true if such questions are possible.
pub(in crate::run) fn set(tools: &mut ToolRegistry, which: Approve) -> bool {
    match which {
        Approve::None => {
            tools.approve(|_| Verdict::Allow);
            false
        }
        Approve::Ask => tools.list().any(|tool| tool.options.approval == Approval::Ask),
        Approve::Each => {
            tools.approve(|_| Verdict::Ask("every call waits for consent".to_owned()));
            tools.names().next().is_some()
        }
    }
}

/// Configures consent as [`set`] does, for a run without a person at a terminal: calls that need consent are refused for `reason`.
pub(in crate::run) fn refuse(tools: &mut ToolRegistry, which: Approve, reason: &'static str) {
    if which != Approve::None {
        tools.approve(move |request| {
            if request.is_marked || which == Approve::Each {
                Verdict::Refuse(format!("the call needs a person's consent: {reason}"))
            } else {
                Verdict::Allow
            }
        });
    }
}

/// Returns the answer that allows a call.
pub(in crate::run) fn allowed() -> Value {
    json!("allow")
}

/// Returns the answer that refuses a call for this reason.
pub(in crate::run) fn refusal(reason: &str) -> Value {
    json!({"decision": "refuse", "reason": reason})
}

/// Prompts for consent to a call; `of` describes its origin.
pub(in crate::run) fn asked(call: &ToolConsent, of: &str) -> Value {
    if call.name == BuiltInTool::RunWorkflow.name() {
        // The reason contains the limits and the graph, which the arguments show as one line of JSON.
        say("? May this workflow run?");
        call.reason.lines().for_each(|line| say(&format!("  {line}")));
    } else {
        say(&format!("? {} {}", call.name, call.arguments));
    }
    say(&format!("  {of}"));
    loop {
        let Some(line) = line_after("  run it? [y]es, [e]dit, or a reason to refuse: ") else {
            return refusal("no answer on the terminal");
        };
        match line.as_str() {
            "y" | "Y" | "yes" => return allowed(),
            "" | "n" | "N" | "no" => return refusal("the user refused"),
            "e" | "E" | "edit" => {
                let Some(line) = line_after("  arguments, as JSON: ") else {
                    return refusal("no answer on the terminal");
                };
                match json_from_str::<Value>(&line) {
                    Ok(arguments) => return json!({"decision": "allow", "arguments": arguments}),
                    Err(error) => say(&format!("    not JSON: {error}")),
                }
            }
            reason => return refusal(&format!("the user refused: {reason}")),
        }
    }
}
