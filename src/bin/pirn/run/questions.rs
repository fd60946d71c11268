//! Questions of USER_INTERACTION nodes: answered on the terminal, or by `--answer`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr, stdin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::Builder;

use futures::executor::block_on;
use pirn::check::Checked;
use pirn::{AnswerRefused, Engine, Interaction};
use pirn_core::graph::NodeKind;
use serde_json::Value;

use super::named_value::json_or_text;
use super::prompt_gate::PromptGate;
use crate::visible::visible_line;

/// Answers that were given beforehand, by node.
pub(super) type Given = BTreeMap<String, Value>;

/// True if any node may ask a person.
pub(super) fn may_come(checked: &Checked) -> bool {
    let mut nodes = checked.graphs().iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| matches!(node.kind, NodeKind::UserInteraction(_)))
}

/// True if a person may be asked on the terminal.
pub(super) fn has_terminal() -> bool {
    stdin().is_terminal()
}

/// The one whom a run's questions are put to, where nobody answered them beforehand.
pub(super) enum Ask {
    /// The person at the terminal.
    Terminal(PromptGate),
    /// The person at the terminal, about several runs.
    TerminalOfMany(PromptGate),
    /// Nobody, for this reason.
    Nobody(&'static str),
    /// Nobody here: other processes speak to the runs of this store.
    Elsewhere(String),
}

/// The answers to a run's questions as they come, from what was given, else by whoever is asked; and who hears of one that was
/// refused.
pub(super) fn answers(
    engine: &Engine,
    given: Given,
    ask: Ask,
) -> (
    impl Fn(&Interaction) -> Option<Value> + Send + Sync + 'static,
    impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
) {
    let waiting: Arc<dyn Fn(&Interaction) + Send + Sync> = match ask {
        Ask::Nobody(why) => Arc::new(move |question: &Interaction| {
            let node = &question.node_id;
            super::say(&format!(
                "node {node} waits for an answer, and {why}: --answer {node}=ANSWER"
            ));
        }),
        Ask::Elsewhere(store) => Arc::new(move |question: &Interaction| {
            let run_id = run_of(question);
            super::say(&format!(
                "node {} of {run_id} waits for an answer: pirn runs answer {run_id} {} ANSWER --store {store}",
                question.node_id, question.id
            ));
        }),
        Ask::Terminal(ref gate) | Ask::TerminalOfMany(ref gate) => {
            let (gate, names_run) = (gate.clone(), matches!(ask, Ask::TerminalOfMany(_)));
            let (to_ask, questions) = channel::<Interaction>();
            let engine = engine.clone();
            let asking = Builder::new().name("pirn-questions".to_owned()).spawn(move || {
                for question in questions {
                    on_terminal(&question, &engine, &gate, names_run);
                }
            });
            // Without the thread nobody answers, as where there is no terminal.
            drop(asking);
            Arc::new(move |question: &Interaction| to_ask.send(question.clone()).unwrap_or(()))
        }
    };
    let refused = Arc::clone(&waiting);
    (
        move |question: &Interaction| {
            let answer = given.get(&*question.node_id).cloned();
            if answer.is_none() {
                waiting(question);
            }
            answer
        },
        move |question: &Interaction, error: &AnswerRefused| {
            super::say(&format!("--answer {}: {error}", question.node_id));
            refused(question);
        },
    )
}

/// Asks until the answer is taken, or the question does not wait any more.
fn on_terminal(question: &Interaction, engine: &Engine, gate: &PromptGate, names_run: bool) {
    let choices: &[Value] = question.choices.as_deref().map_or(&[], Vec::as_slice);
    let is_text = choices.is_empty() && question.schema.is_none();
    let run_id = run_of(question);
    let text = if names_run {
        format!("{run_id}: {}", question.question)
    } else {
        question.question.to_string()
    };
    while let Some(run) = engine.find(run_id)
        && let Some(line) = gate.ask(|| asked(&text, choices))
    {
        let answer = match line.parse::<usize>() {
            Ok(number) if (1..=choices.len()).contains(&number) => choices[number - 1].clone(),
            _ if is_text => Value::from(line),
            _ => json_or_text(&line),
        };
        match block_on(run.answer(&question.id, answer)) {
            Ok(()) | Err(AnswerRefused::NotOpen) => return,
            Err(refused) => super::say(&refused.to_string()),
        }
    }
}

fn run_of(question: &Interaction) -> &str {
    question.thread_id.rsplit_once('.').map_or("", |(run_id, _)| run_id)
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
