//! Queue object: runs without an owner, and the processes that request runs.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use std::collections::VecDeque;

use restate_sdk::context::{ContextReadState, ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;
use serde::{Deserialize, Serialize};

use super::call::Target;
use crate::wire::{OfferCall, WantsCall};

const LINE: &str = "line";

/// Range of the numbered keys that store the queued runs.
#[derive(Default, Serialize, Deserialize)]
struct Line {
    first: u64,
    next: u64,
    /// Processes and the number of runs that each still requests, served in turn.
    wanting: VecDeque<(String, usize)>,
}

fn run_key(number: u64) -> String {
    format!("run {number}")
}

pub(super) struct QueueObject;

#[restate_sdk::object(name = "PirnQueue", client_visibility = "pub(super)")]
impl QueueObject {
    #[handler]
    async fn offer(&self, ctx: ObjectContext<'_>, run: Json<OfferCall>) -> Result<(), HandlerError> {
        let mut line = line(&ctx).await?;
        // A waiting process gets the run at once, without an entry in the line.
        if let Some(process) = line.taker() {
            assign(&ctx, &run.0, process);
        } else {
            ctx.set(&run_key(line.next), run);
            line.next += 1;
        }
        ctx.set(LINE, Json(line));
        Ok(())
    }

    /// Replaces the number of runs that a process requests.
    #[handler]
    async fn want(&self, ctx: ObjectContext<'_>, call: Json<WantsCall>) -> Result<(), HandlerError> {
        let WantsCall { process, runs } = call.0;
        let mut line = line(&ctx).await?;
        // A changed request moves to the end of the line.
        line.wanting.retain(|(known, _)| *known != process);
        if runs > 0 {
            line.wanting.push_back((process, runs));
        }
        while line.first < line.next {
            let Some(process) = line.taker() else { break };
            let key = run_key(line.first);
            line.first += 1;
            if let Some(run) = ctx.get::<Json<OfferCall>>(&key).await? {
                assign(&ctx, &run.0, process);
            }
            ctx.clear(&key);
        }
        ctx.set(LINE, Json(line));
        Ok(())
    }
}

fn assign(ctx: &ObjectContext<'_>, offered: &OfferCall, process: String) {
    let handler = if offered.is_little { "assign_little" } else { "assign" };
    // One-way: the run may have ended or have an owner, and then sends `Nothing` in its place.
    Target::run(&offered.run, handler).tell(ctx, process);
}

async fn line(ctx: &ObjectContext<'_>) -> Result<Line, HandlerError> {
    Ok(ctx
        .get::<Json<Line>>(LINE)
        .await?
        .map(|line| line.0)
        .unwrap_or_default())
}

impl Line {
    /// Returns the process that gets the next run.
    fn taker(&mut self) -> Option<String> {
        let (process, wants) = self.wanting.pop_front()?;
        if wants > 1 {
            // To the end of the line, so that several idle processes share the runs evenly.
            self.wanting.push_back((process.clone(), wants - 1));
        }
        Some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_get_runs_in_turn_up_to_their_requested_number() {
        let wanting = VecDeque::from([("a".to_owned(), 1), ("b".to_owned(), 3), ("c".to_owned(), 2)]);
        let mut line = Line {
            wanting,
            ..Line::default()
        };
        let given: Vec<String> = std::iter::from_fn(|| line.taker()).collect();
        assert_eq!(given, ["a", "b", "c", "b", "c", "b"]);
    }
}
