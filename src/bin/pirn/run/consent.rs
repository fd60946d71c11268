//! Consent to tool calls, asked for on the terminal.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::ValueEnum;
use futures::FutureExt;
use futures::channel::oneshot;
use pirn::tools::{Approval, ApprovalRequest, Question, ToolInfo, ToolRegistry, Verdict};
use serde_json::{Map, Value};

use super::prompt_gate::{self, PromptGate};
use crate::visible::visible_line;

/// Which calls are asked about.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum Approve {
    /// Those of tools that say approval = "ask"
    Ask,
    /// All of them
    Each,
    /// None: every call runs
    None,
}

/// A call, and where the answer goes.
type Pending = (ApprovalRequest, oneshot::Sender<Verdict>);

/// Has the tools ask. Whether questions may come on the terminal.
pub(super) fn set(tools: &mut ToolRegistry, which: Approve, gate: &PromptGate) -> bool {
    // An MCP server may have questions of its own.
    let may_ask = |tool: &ToolInfo| tool.options.approval == Approval::Ask || tool.options.source.starts_with("mcp ");
    let any_marked = tools.list().any(|tool| may_ask(&tool));
    let asks = match which {
        Approve::None => {
            tools.approve(|_| Verdict::Allow);
            false
        }
        Approve::Ask => any_marked,
        Approve::Each => tools.names().next().is_some(),
    };
    if !asks {
        return false;
    }
    if !stdin().is_terminal() {
        // Nobody can answer.
        if which == Approve::Each {
            tools.approve(|_| Verdict::Refuse("it needs consent, and there is no terminal to ask on".to_owned()));
        }
        return false;
    }
    let (ask, questions) = channel();
    let asking = std::thread::Builder::new().name("pirn-consent".to_owned()).spawn({
        let gate = gate.clone();
        move || answer(&questions, &gate)
    });
    if asking.is_ok() {
        tools.approve_async(move |request| question(which, request, &ask).boxed());
    }
    true
}

fn question(
    which: Approve,
    request: ApprovalRequest,
    ask: &Sender<Pending>,
) -> impl Future<Output = Verdict> + Send + 'static {
    let is_asked = request.is_marked || which == Approve::Each;
    let (sender, receiver) = oneshot::channel();
    let sent = is_asked.then(|| ask.send((request, sender)).is_ok());
    async move {
        match sent {
            None => Verdict::Allow,
            Some(false) => refused(),
            Some(true) => receiver.await.unwrap_or_else(|_| refused()),
        }
    }
}

fn refused() -> Verdict {
    Verdict::Refuse("nobody answered on the terminal".to_owned())
}

/// One question after the other.
fn answer(questions: &Receiver<Pending>, gate: &PromptGate) {
    for (request, sender) in questions {
        // Its run was stopped while it waited.
        if sender.is_canceled() {
            continue;
        }
        let verdict = gate.ask(|| asked(&request));
        // As above: then the answer is nobody's.
        sender.send(verdict).unwrap_or(());
    }
}

fn asked(request: &ApprovalRequest) -> Verdict {
    if let Some(question) = &request.question {
        return answered(&request.tool, question);
    }
    let mut line = String::new();
    let arguments = visible_line(&request.arguments.to_string());
    let by = request.caller.as_ref().map_or_else(String::new, |caller| {
        format!(
            "  for node {}, thread {}\n",
            visible_line(caller.node_id.as_deref().unwrap_or_default()),
            visible_line(&caller.thread_id)
        )
    });
    let wrote = write!(
        stderr().lock(),
        "? {} {arguments}\n{by}  run it? [y]es, or say why not: ",
        visible_line(&request.tool)
    );
    if wrote.is_err() || stderr().flush().is_err() {
        return refused();
    }
    match stdin().read_line(&mut line) {
        // The end of the input is no answer, and ends no line.
        Ok(0) | Err(_) => {
            prompt_gate::put(&[String::new()]);
            return refused();
        }
        Ok(_) => {}
    }
    match line.trim() {
        "y" | "Y" | "yes" => Verdict::Allow,
        "" | "n" | "N" | "no" => Verdict::Refuse("the user said no".to_owned()),
        reason => Verdict::Refuse(format!("the user said: {reason}")),
    }
}

/// Asks for each property of the answer, in a line of its own.
fn answered(tool: &str, question: &Question) -> Verdict {
    let declined = || Verdict::Refuse("the user gave no answer".to_owned());
    let schema = &question.schema;
    let fields = schema.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let wrote = writeln!(
        stderr().lock(),
        "? {} asks: {}",
        visible_line(tool),
        visible_line(&question.message)
    );
    let mut answer = Map::new();
    for (name, field) in fields.into_iter().flatten() {
        let about = ["title", "description"]
            .iter()
            .find_map(|key| field.get(*key)?.as_str());
        let choices = field
            .get("enum")
            .map_or_else(String::new, |choices| format!(" {choices}"));
        let about = about.map_or_else(String::new, |about| format!(" ({about})"));
        let prompt = format!("  {name}{about}{choices}: ");
        let Some(line) = line_after(&visible_line(&prompt)) else {
            return declined();
        };
        let text = line.trim();
        if text.is_empty() {
            if required.contains(&name.as_str()) {
                return declined();
            }
            continue;
        }
        answer.insert(name.clone(), value_of(text, field));
    }
    if answer.is_empty()
        && !matches!(
            line_after("  [y]es, or nothing to decline: ").as_deref(),
            Some("y" | "yes")
        )
    {
        return declined();
    }
    if wrote.is_err() {
        return declined();
    }
    Verdict::Answer(Value::Object(answer))
}

/// A line that was typed after these words; none at the end of the input.
fn line_after(words: &str) -> Option<String> {
    let mut line = String::new();
    write!(stderr().lock(), "{words}").ok()?;
    stderr().flush().ok()?;
    match stdin().read_line(&mut line) {
        Ok(0) | Err(_) => {
            prompt_gate::put(&[String::new()]);
            None
        }
        Ok(_) => Some(line.trim().to_owned()),
    }
}

/// The typed text as a value of the field's type; a text where it is none of that.
fn value_of(text: &str, field: &Value) -> Value {
    let of_type = match field.get("type").and_then(Value::as_str) {
        Some("boolean") => match text {
            "y" | "yes" | "true" => Some(Value::Bool(true)),
            "n" | "no" | "false" => Some(Value::Bool(false)),
            _ => None,
        },
        Some("integer" | "number") => serde_json::from_str(text).ok(),
        _ => None,
    };
    of_type.unwrap_or_else(|| Value::from(text))
}
