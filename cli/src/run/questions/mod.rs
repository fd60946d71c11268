//! Questions of a run, from USER_INTERACTION nodes and about tool calls: answered on the terminal, or by `--answer`.
//! Threads that prompt a person, and lines that the person types, belong here too.
//!
//! Not here: lines that show the progress of a run, which are in `progress`.

pub(super) mod asking;
pub(super) mod consent;
pub(super) mod elicitation;
pub(super) mod messages;
pub(super) mod named_value;
pub(super) mod prompt_gate;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use futures::executor::block_on;
use pirn::check::CheckedFiles;
use pirn::{AnswerRefused, Engine, Interaction};
use pirn_definition::definition::ToolEntry;
use pirn_definition::graph::NodeKind;
use serde_json::Value;

use self::asking::{Asking, line_after, say};
use self::named_value::WrittenAnswer;
use self::prompt_gate::PromptGate;
use crate::output::failure::Failure;
use crate::output::terminal::shell_quoted;

/// Answers from the command line, by node.
pub(super) type Given = BTreeMap<String, WrittenAnswer>;

/// True if a node of the workflows can put a question to a person, in addition to the calls of tools that need consent.
pub(super) fn may_come(checked: &CheckedFiles) -> bool {
    let mut nodes = checked.graphs().iter().flat_map(|graph| &graph.nodes);
    nodes.any(|node| match &node.kind {
        // A script determines its calls of `ask` at run time.
        NodeKind::UserInteraction(_) | NodeKind::Orchestration(_) => true,
        // The model submits a workflow, or calls one as a tool, and a person may have to approve it.
        NodeKind::Llm(llm) => llm.dynamic.is_some() || llm.tools.iter().any(|tool| ToolEntry::split_consent(tool).1),
        _other => false,
    })
}

/// The recipient of a run's questions that have no prepared answer.
pub(super) enum Ask {
    /// The person at the terminal.
    Terminal(Asking),
    /// The person at the terminal, about several runs.
    TerminalOfMany(Asking),
    /// No recipient, for this reason; the run may continue without an answer.
    Nobody(&'static str),
    /// No recipient, for this reason: a run that waits for an answer without a time limit ends.
    NobodyEver(&'static str),
    /// No recipient in this process: other processes answer through the store, with these command line arguments.
    Elsewhere(String),
}

/// The question that ended a run, since no answer to it is possible.
#[derive(Clone, Default)]
pub(super) struct UnansweredQuestion(Arc<OnceLock<(String, String)>>);

impl UnansweredQuestion {
    /// Ends the run of a question.
    fn end(&self, question: &Interaction, why: &str, engine: &Engine) {
        let node = &question.node_id;
        let asked = format!("node {node} waits for an answer ({why}): {}", question.question);
        let word = format!("{node}=ANSWER");
        let help = format!(
            "answer beforehand with --answer {}, run on a terminal, or store the run with --store FILE and answer it with pirn \
             runs answer",
            shell_quoted(&word)
        );
        if let Some(run) = engine.find(run_of(question)) {
            run.cancel(asked.clone());
        }
        // Only the first question is stored: that one ended the run.
        let _: Result<(), _> = self.0.set((asked, help));
    }

    /// Returns the failure of a run that was ended by a question.
    pub(super) fn failure(&self) -> Option<Failure> {
        let (asked, help) = self.0.get()?;
        Some(Failure::failed("UNANSWERED", asked.clone()).with_help(help.clone()))
    }
}

/// Callback for a question that waits; returns the answer if it is available at once.
type Waiting = Arc<dyn Fn(&Interaction) -> Option<Value> + Send + Sync>;

/// Returns two callbacks. The first answers a question from the given answers, else passes it to the recipient. The second reports
/// a refused answer and passes the question to the recipient.
pub(super) fn answers(
    engine: &Engine,
    given: Given,
    ask: Ask,
    unanswered: &UnansweredQuestion,
) -> (
    impl Fn(&Interaction) -> Option<Value> + Send + Sync + 'static,
    impl Fn(&Interaction, &AnswerRefused) + Send + Sync + 'static,
) {
    let waiting: Waiting = match ask {
        Ask::Nobody(why) => Arc::new(move |question: &Interaction| {
            if question.tool.is_some() {
                return Some(consent::refusal(&format!("the call needs a person's consent: {why}")));
            }
            let node = &question.node_id;
            let word = format!("{node}=ANSWER");
            super::say(&format!(
                "node {node} waits for an answer ({why}): --answer {}",
                shell_quoted(&word)
            ));
            None
        }),
        Ask::NobodyEver(why) => {
            let (engine, unanswered) = (engine.clone(), unanswered.clone());
            Arc::new(move |question: &Interaction| {
                if question.tool.is_some() {
                    return Some(consent::refusal(&format!("the call needs a person's consent: {why}")));
                }
                if question.timeout_ms.is_none() {
                    unanswered.end(question, why, &engine);
                }
                None
            })
        }
        Ask::Elsewhere(place) => Arc::new(move |question: &Interaction| {
            let run_id = run_of(question);
            let answer = if question.tool.is_some() { "allow" } else { "ANSWER" };
            super::say(&format!(
                "node {} of {run_id} waits for an answer: pirn runs answer {} {} {answer} {place}",
                question.node_id,
                shell_quoted(run_id),
                shell_quoted(&question.id)
            ));
            None
        }),
        Ask::Terminal(ref asking) | Ask::TerminalOfMany(ref asking) => {
            let (asking, names_run) = (asking.clone(), matches!(ask, Ask::TerminalOfMany(_)));
            let engine = engine.clone();
            Arc::new(move |question: &Interaction| {
                let (question, engine) = (question.clone(), engine.clone());
                asking.ask(move |gate| on_terminal(&question, &engine, gate, names_run));
                None
            })
        }
    };
    let refused = Arc::clone(&waiting);
    (
        move |question: &Interaction| {
            let answer = given.get(&*question.node_id).map(|answer| answer.to(question));
            answer.or_else(|| waiting(question))
        },
        move |question: &Interaction, error: &AnswerRefused| {
            super::say(&format!("--answer {}: {error}", question.node_id));
            // Ignore an immediate answer: the call is for the message and the prompt.
            let _ = refused(question);
        },
    )
}

/// Prompts until an answer is accepted, or the question is closed.
fn on_terminal(question: &Interaction, engine: &Engine, gate: &PromptGate, names_run: bool) {
    let run_id = run_of(question);
    while let Some(run) = engine.find(run_id) {
        // The question may have been answered elsewhere, or withdrawn, while it was queued.
        let is_open = block_on(run.interactions()).iter().any(|open| open.id == question.id);
        let Some(answer) = is_open.then(|| gate.ask(|| typed(question, names_run))).flatten() else {
            return;
        };
        match block_on(run.answer(&question.id, answer)) {
            Ok(()) | Err(AnswerRefused::NotOpen) => return,
            Err(refused) => super::say(&refused.to_string()),
        }
    }
}

/// Prompts for an answer; `None` at the end of the input.
fn typed(question: &Interaction, names_run: bool) -> Option<Value> {
    if let Some(call) = &question.tool {
        let of = format!("for node {}, thread {}", question.node_id, question.thread_id);
        return Some(consent::asked(call, &of));
    }
    let choices: &[Value] = question.choices.as_deref().map_or(&[], Vec::as_slice);
    let is_text = choices.is_empty() && question.schema.is_none();
    let run = if names_run {
        format!("{}: ", run_of(question))
    } else {
        String::new()
    };
    say(&format!("? {run}{}", question.question));
    for (number, choice) in (1..).zip(choices) {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        say(&format!("  {number}) {choice}"));
    }
    loop {
        let line = line_after("  > ")?;
        match line.parse::<usize>() {
            Ok(number) if (1..=choices.len()).contains(&number) => return Some(choices[number - 1].clone()),
            _ if is_text => return Some(Value::from(line)),
            _ => match WrittenAnswer::of(&line) {
                Ok(answer) => return Some(answer.to(question)),
                Err(error) => say(&format!("    {error}")),
            },
        }
    }
}

fn run_of(question: &Interaction) -> &str {
    question.thread_id.rsplit_once('.').map_or("", |(run_id, _)| run_id)
}
