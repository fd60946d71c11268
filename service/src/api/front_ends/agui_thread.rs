//! The runs of an AG-UI thread. While a thread has open interrupts, it accepts only their answers.
//!
//! Run ids start with a prefix that is derived from the thread, so the thread's runs are found again after a restart.

use std::collections::BTreeSet;

use serde_json::json;

use super::client_tools::check_none_open;
use crate::http::problem::{Problem, ProblemCode};
use crate::runs::Run;
use crate::runs::events::position::Position;
use crate::state::Service;
use crate::wire::interrupts::InterruptId;
use pirn::Interaction;
use pirn::store::ContentHash;

/// Maximum number of interrupts that a refusal names; the message contains the number of the others.
const MAX_NAMED: usize = 20;

/// Digits of the hash in the ids of a thread's runs.
const DIGITS: usize = 32;

/// An AG-UI client's thread with one workflow.
pub(crate) struct AgUiThread {
    /// Prefix of the ids of the thread's runs; no other run has it.
    prefix: String,
}

impl AgUiThread {
    pub(crate) fn new(service: &Service, workflow: &str, thread_id: &str) -> Self {
        let hash = ContentHash::of(&json!([workflow, thread_id]).to_string()).to_string();
        Self {
            prefix: service
                .scope()
                .run_id(&format!("agui-{}-", &hash[..DIGITS]))
                .into_owned(),
        }
    }

    /// Returns the prefix of the ids of the thread's runs.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn new_run_id(&self, service: &Service) -> String {
        format!("{}{}", self.prefix, service.engine_run_id())
    }

    pub(crate) fn has(&self, run: &Run) -> bool {
        run.id().starts_with(&self.prefix)
    }

    /// Checks that no question of the thread's runs is open, and no call of the client's tools.
    pub(crate) async fn check_none_waits(&self, service: &Service) -> Result<(), Problem> {
        let mut waiting = Vec::new();
        for run in service.runs().with_prefix(&self.prefix) {
            check_none_open(&run).await?;
            let (after, _) = run.log.last();
            let open = run.handle.interactions().await;
            waiting.extend(open.into_iter().map(|asked| (asked, after)));
        }
        check_none(&waiting)
    }
}

/// Checks that the answers cover every question that the client has received: those raised up to this position.
pub(crate) async fn check_all_answered(run: &Run, answered: &BTreeSet<&str>, told: Position) -> Result<(), Problem> {
    let open = run.handle.interactions().await.into_iter();
    let is_told = |asked: &Interaction| {
        run.questions
            .asked_at(&asked.id)
            .is_some_and(|asked_at| asked_at.sequence <= told.sequence)
    };
    // Results of the client's tools are no answers to interrupts.
    let open = open.filter(|asked| asked.client_tool.is_none());
    let left = open.filter(|asked| !answered.contains(&*asked.id) && is_told(asked));
    check_none(&left.map(|asked| (asked, told)).collect::<Vec<_>>())
}

fn check_none(waiting: &[(Interaction, Position)]) -> Result<(), Problem> {
    if waiting.is_empty() {
        return Ok(());
    }
    let named = waiting.iter().take(MAX_NAMED).map(|(asked, after)| {
        let id = InterruptId {
            interaction: &asked.id,
            after: *after,
        };
        format!("{id} ({})", asked.question)
    });
    let mut named: Vec<String> = named.collect();
    if let Some(more) = waiting.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        named.push(format!("{more} more"));
    }
    let detail = format!("`resume` must answer every open interrupt: {}", named.join(", "));
    Err(Problem::new(ProblemCode::InterruptsOpen, detail))
}
