//! Every kind of input in every state: reached by the walk, or listed here as impossible and never reached.

use std::collections::BTreeSet;

use super::kind::{KINDS, Kind};
use super::walk::{Tried, walk};

/// States without an awaited effect.
const ASKS_NOTHING: [&str; 5] = ["CREATED", "PAUSED SafePoint", "SafePoint", "Llm.Held", "ended"];

/// States with an awaited effect. A paused thread still applies the results of triggers.
const ASKS: [&str; 37] = [
    "PAUSED AwaitingTriggers",
    "PAUSED Merging",
    "AwaitingTriggers",
    "Merging",
    "Edges",
    "RetryDelay",
    "End",
    "Variable.Value",
    "Variable.Global",
    "Llm.Texts",
    "Llm.Prompting",
    "Llm.Preparing",
    "Llm.Announcing",
    "Llm.Merging",
    "Llm.Calling",
    "Llm.Replying",
    "Llm.Tools",
    "Llm.Answering",
    "Llm.Closing",
    "Code.Input",
    "Code.Work",
    "Script",
    "Route",
    "Join",
    "Subgraph.Input",
    "Subgraph.Child",
    "Subgraph.Output",
    "Map.Inputs",
    "Map.Join",
    "Interaction.Texts",
    "Interaction.Asked",
    "Context.Texts",
    "Context.Pin",
    "Context.Work",
    "Context.Compressing",
    "Context.Summary",
    "Wait",
];

/// States without an active time limit: between two nodes, or between two attempts.
const NO_LIMIT: [&str; 10] = [
    "CREATED",
    "PAUSED SafePoint",
    "PAUSED AwaitingTriggers",
    "PAUSED Merging",
    "SafePoint",
    "AwaitingTriggers",
    "Merging",
    "Edges",
    "RetryDelay",
    "ended",
];

fn is_impossible(state: &str, kind: Kind) -> bool {
    match kind {
        Kind::Fits | Kind::Unfit | Kind::Failed => ASKS_NOTHING.contains(&state),
        Kind::Limit => NO_LIMIT.contains(&state),
        Kind::Start | Kind::Stale | Kind::Cancel | Kind::Pause | Kind::Resume | Kind::Triggered | Kind::Assign => false,
    }
}

#[test]
fn every_input_in_every_state_is_reached_or_impossible() {
    let mut tried = Tried::new();
    for seed in 0..2_000 {
        walk(seed, 10 + (seed as usize % 7) * 9, &mut tried);
    }
    let states: BTreeSet<&str> = ASKS_NOTHING.iter().chain(&ASKS).copied().collect();
    let found: BTreeSet<&str> = tried.iter().map(|(state, _)| state.as_str()).collect();
    assert_eq!(found, states, "the states that the walk was in");
    let mut wrong = Vec::new();
    for state in states {
        for kind in KINDS {
            let reached = tried.contains(&(state.to_owned(), kind));
            if reached == is_impossible(state, kind) {
                wrong.push(format!("{state} {kind:?}: reached {reached}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
