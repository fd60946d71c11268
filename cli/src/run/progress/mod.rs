//! Progress on stderr: one line for each event worth showing, with its time and its thread. On a terminal, the running nodes are
//! shown below the lines.

mod forks;
mod line;
mod line_buffer;
mod live;
mod meter;
pub(super) mod places;
pub(super) mod quiet;
mod replies;
mod summary;
mod view;

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::thread::JoinHandle;

use console::Term;
use pirn::{BlockingEvents, Event, EventType, RunReport, SubscriptionItem};

use super::questions::prompt_gate::{self, PromptGate};
use crate::output::terminal::say;
use crate::process::log;
use live::Live;
use places::Places;
use view::{Compressions, View};

/// Types of events that the terminal shows.
const TYPES: &[EventType] = &[
    EventType::ThreadStarted,
    EventType::ThreadCompleted,
    EventType::ThreadFailed,
    EventType::ThreadCancelled,
    EventType::ThreadPaused,
    EventType::ThreadResumed,
    EventType::ThreadForkStarted,
    EventType::ThreadJoinConditionMet,
    EventType::NodeStarted,
    EventType::NodeCompleted,
    EventType::NodeFailed,
    EventType::RequestPrepared,
    EventType::ToolCallStarted,
    EventType::ToolCallFailed,
    EventType::TokenLimitExceeded,
    EventType::TokenUsageWarning,
    EventType::TokenLimitApproached,
    EventType::BudgetWarning,
    EventType::BudgetOverrun,
    EventType::CacheCollapsed,
    EventType::CompressionCompleted,
    EventType::CompressionFailed,
    EventType::SubgraphStarted,
    EventType::TriggeredSubgraphStarted,
    EventType::TriggeredSubgraphFailed,
    EventType::TriggerFailed,
    EventType::Notification,
    EventType::ScriptLog,
    EventType::UserMessage,
    EventType::InteractionRequested,
    EventType::InteractionAnswered,
    EventType::InteractionWithdrawn,
    EventType::InteractionTimedOut,
];

/// Choice of when the replies of models are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replies {
    Always,
    OnTerminal,
    Never,
}

/// Style of the progress display.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// True if the running nodes are redrawn below the lines.
    moves: bool,
    /// True if replies are shown.
    replies: bool,
    /// True if every node is shown, and replies in full.
    verbose: bool,
    /// Columns to wrap at; `None` if stderr is no terminal.
    columns: Option<usize>,
}

impl Style {
    /// Returns the style for stderr; nothing is redrawn if questions may appear on the terminal.
    pub(super) fn suiting(prompts: bool, replies: Replies, verbose: bool) -> Self {
        let is_terminal = stderr().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            moves: is_terminal && !prompts && !is_dumb,
            replies: match replies {
                Replies::Always => true,
                Replies::OnTerminal => is_terminal && !prompts,
                Replies::Never => false,
            },
            verbose,
            columns: is_terminal.then(|| usize::from(Term::stderr().size().1)),
        }
    }

    /// Returns the types of events that this style shows.
    pub(super) fn types(self) -> Vec<EventType> {
        let mut types = TYPES.to_vec();
        if self.replies {
            types.push(EventType::LlmToken);
        }
        types
    }
}

/// A running progress display.
pub(super) struct ProgressDisplay {
    drawer: Option<JoinHandle<Compressions>>,
    columns: Option<usize>,
}

/// Starts a thread that draws until the events end. `seen` are the events of a resumed run before them.
pub(super) fn start(
    events: BlockingEvents,
    style: Style,
    gate: PromptGate,
    mut places: Option<Places>,
    seen: Vec<Arc<Event>>,
) -> ProgressDisplay {
    let drawer = std::thread::Builder::new()
        .name("pirn-progress".to_owned())
        .spawn(move || {
            let mut view = View::new(style.verbose);
            view.skip(seen);
            let live = style.moves.then(Live::new);
            log::show_by(Some(if let Some(live) = &live {
                live.printing()
            } else {
                let gate = gate.clone();
                Box::new(move |line: String| gate.write(&[line]))
            }));
            for heard in events {
                let lines = view.hear(&heard);
                let mut rendered: Vec<String> = lines.iter().flat_map(|line| line.render(style.columns)).collect();
                if let (Some(places), SubscriptionItem::Event(event)) = (&mut places, &heard) {
                    rendered.extend(places.of(event));
                }
                match &live {
                    Some(live) => live.show(&rendered, &view),
                    None => gate.write(&rendered),
                }
            }
            log::show_by(None);
            if let Some(live) = live {
                live.end();
            }
            view.compressions()
        });
    ProgressDisplay {
        drawer: drawer.ok(),
        columns: style.columns,
    }
}

impl ProgressDisplay {
    /// Waits for the last event, and prints the summary.
    pub(super) fn finish(self, report: &RunReport, was_interrupted: bool) {
        let columns = self.columns;
        let compressions = self.compressions();
        // A durable run that continues elsewhere has no summary.
        if !report.threads.is_empty() {
            let line = summary::line(report, compressions, was_interrupted);
            prompt_gate::put(&line.render(columns));
        }
    }

    /// Waits for the last event, without a summary.
    pub(super) fn wait(self) {
        self.compressions();
    }

    fn compressions(self) -> Compressions {
        match self.drawer.map(JoinHandle::join) {
            Some(Ok(compressions)) => compressions,
            Some(Err(_)) => {
                say("the progress view panicked; the run did not");
                Compressions::default()
            }
            None => Compressions::default(),
        }
    }
}
