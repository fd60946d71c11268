//! Progress on stderr: a line for what a person wants to know. On a terminal, what runs now is shown below the lines.
//!
//! | sign | |
//! |---|---|
//! | `>` `<` | a thread started, completed |
//! | `!` `x` | something failed, a thread was cancelled |
//! | `Y` `=` | a fork, its join |
//! | `#` | tokens of a conversation, a compression |
//! | `*` | a trigger fired, a notification |

mod forks;
mod live;
mod meter;
mod view;

use std::io::{IsTerminal, Write, stderr};
use std::thread::JoinHandle;

use pirn::{BlockingEvents, EventType, RunReport};

use super::floor::{self, Floor};
use live::Live;
use meter::grouped;
use view::View;

/// What the terminal shows of a run.
const TYPES: &[EventType] = &[
    EventType::ThreadStarted,
    EventType::ThreadCompleted,
    EventType::ThreadFailed,
    EventType::ThreadCancelled,
    EventType::ThreadPaused,
    EventType::ThreadResumed,
    EventType::ThreadForkStarted,
    EventType::ThreadJoinConditionMet,
    EventType::NodeFailed,
    EventType::RequestPrepared,
    EventType::ToolCallStarted,
    EventType::ToolCallFailed,
    EventType::TokenLimitExceeded,
    EventType::TokenUsageWarning,
    EventType::CompressionCompleted,
    EventType::CompressionFailed,
    EventType::TriggeredSubgraphStarted,
    EventType::TriggeredSubgraphFailed,
    EventType::TriggerFailed,
    EventType::Notification,
];

/// What only the part that moves shows.
const MOVING: &[EventType] = &[EventType::NodeStarted, EventType::LlmToken];

/// How progress is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Lines without colours: no terminal, or `NO_COLOR` is set.
    Plain,
    /// Colours, and what runs now below the lines.
    Moving,
}

impl Style {
    /// What suits stderr; nothing moves where questions may come on the terminal.
    pub(super) fn suiting(prompts: bool) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if stderr().is_terminal() && !prompts && !is_set("NO_COLOR") && !is_dumb {
            Self::Moving
        } else {
            Self::Plain
        }
    }

    /// The events that are shown so; replies as they come where something moves, or where they are asked for.
    pub(super) fn types(self, replies: bool) -> Vec<EventType> {
        match (self, replies) {
            (Self::Plain, false) => TYPES.to_vec(),
            (Self::Plain, true) => [TYPES, &[EventType::LlmToken]].concat(),
            (Self::Moving, _) => [TYPES, MOVING].concat(),
        }
    }
}

/// A view that is being drawn.
pub(super) struct Shown {
    drawer: Option<JoinHandle<()>>,
}

/// One line, outside a run.
pub(crate) fn say(text: &str) {
    // Where stderr is gone nobody is there to be told.
    let _ = writeln!(stderr().lock(), "pirn: {text}");
}

/// Draws until the events end.
pub(super) fn start(events: BlockingEvents, style: Style, floor: Floor) -> Shown {
    let drawer = std::thread::Builder::new()
        .name("pirn-progress".to_owned())
        .spawn(move || {
            let mut view = View::default();
            let live = (style == Style::Moving).then(Live::new);
            for heard in events {
                let lines = view.hear(&heard);
                match &live {
                    Some(live) => live.show(&lines, &view),
                    None => floor.write(&lines),
                }
            }
            if let Some(live) = live {
                live.end();
            }
        });
    Shown { drawer: drawer.ok() }
}

impl Shown {
    /// Waits for the last line, and sums up.
    pub(super) fn finish(self, report: &RunReport) {
        if let Some(drawer) = self.drawer
            && drawer.join().is_err()
        {
            say("the progress view panicked; the run did not");
        }
        let threads = report.threads.len();
        let spent = grouped(report.tokens.spent.total);
        floor::put(&[format!(
            "{} after {}: {} thread{}, {spent} tokens spent",
            report.status.as_str().to_lowercase(),
            seconds(report.elapsed_ms),
            grouped(threads as u64),
            if threads == 1 { "" } else { "s" },
        )]);
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", grouped(ms / 1000), ms % 1000 / 100)
}
