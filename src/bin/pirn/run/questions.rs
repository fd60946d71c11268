//! Questions of USER_INTERACTION nodes: answered on the terminal, or by `--answer`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr, stdin};

use futures::executor::block_on;
use pirn::check::Checked;
use pirn::{AnswerRefused, BlockingEvents, Event, EventType, Heard, RunHandle};
use pirn_core::graph::NodeKind;
use serde_json::Value;

use super::prompt_gate::PromptGate;
use crate::visible::visible_line;

/// Answers that were given beforehand, by node.
pub(super) type Given = BTreeMap<String, Value>;

/// Reads `NODE=ANSWER`: JSON, or a text.
pub(super) fn given(text: &str) -> Result<(String, Value), String> {
    let (node, answer) = text.split_once('=').ok_or_else(|| "expected NODE=ANSWER".to_owned())?;
    Ok((node.to_owned(), read(answer)))
}

/// True if any node may ask a person.
pub(super) fn may_come(checked: &Checked) -> bool {
    let mut nodes = checked.graphs().iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| matches!(node.kind, NodeKind::UserInteraction(_)))
}

/// True if a person may be asked on the terminal.
pub(super) fn has_terminal() -> bool {
    stdin().is_terminal()
}

/// Answers the questions that `events` tell of, one after the other, until the run has ended.
pub(super) fn answer(events: BlockingEvents, run: RunHandle, given: Given, gate: Option<PromptGate>) {
    let answering = std::thread::Builder::new()
        .name("pirn-questions".to_owned())
        .spawn(move || {
            for heard in events {
                let Heard::Event(event) = heard else { continue };
                if event.raised.event_type == EventType::InteractionRequested {
                    one(&event, &run, &given, gate.as_ref());
                }
            }
        });
    // Without the thread nobody answers, as where there is no terminal.
    drop(answering);
}

fn one(event: &Event, run: &RunHandle, given: &Given, gate: Option<&PromptGate>) {
    let field = |name: &str| event.raised.data.get(name).cloned().unwrap_or_default();
    let text = |name: &str| field(name).as_str().unwrap_or_default().to_owned();
    let (id, node) = (text("interactionId"), text("nodeId"));
    if let Some(answer) = given.get(&node) {
        match block_on(run.answer(&id, answer.clone())) {
            Ok(()) | Err(AnswerRefused::NotOpen) => return,
            Err(refused) => super::say(&format!("--answer {node}: {refused}")),
        }
    }
    let Some(gate) = gate else {
        super::say(&format!(
            "node {node} waits for an answer, and there is no terminal to ask on: --answer {node}=ANSWER"
        ));
        return;
    };
    let choices = field("choices").as_array().cloned().unwrap_or_default();
    let is_text = choices.is_empty() && field("schema").is_null();
    loop {
        let Some(line) = gate.ask(|| asked(&text("question"), &choices)) else {
            return;
        };
        let answer = match line.parse::<usize>() {
            Ok(number) if (1..=choices.len()).contains(&number) => choices[number - 1].clone(),
            _ if is_text => Value::from(line),
            _ => read(&line),
        };
        match block_on(run.answer(&id, answer)) {
            Ok(()) | Err(AnswerRefused::NotOpen) => return,
            Err(refused) => super::say(&refused.to_string()),
        }
    }
}

/// JSON, or a text that is none.
fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// The line that was typed; none at the end of the input.
fn asked(question: &str, choices: &[Value]) -> Option<String> {
    let mut out = stderr().lock();
    writeln!(out, "? {}", visible_line(question)).ok()?;
    for (number, choice) in (1..).zip(choices) {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        writeln!(out, "  {number}) {}", visible_line(&choice)).ok()?;
    }
    write!(out, "  > ").ok()?;
    out.flush().ok()?;
    drop(out);
    let mut line = String::new();
    match stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}
