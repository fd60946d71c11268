//! Advice after a failed run, by the code of its error.

use pirn::{RunError, RunErrorCode};
use pirn_conversation::model_call::{FailureKind, ModelFailure};

/// Returns advice for a model that did not answer, by the cause.
pub(super) fn of_model(error: &RunError) -> Option<&'static str> {
    if error.code != RunErrorCode::ModelError {
        return None;
    }
    Some(match ModelFailure::of(error).kind {
        FailureKind::Key => {
            "check that the variable named by the profile is set (export NAME=...) and contains a valid key"
        }
        FailureKind::Unreachable => {
            "check the profile's `endpoint`, and that a server listens there: `pirn models check`"
        }
        FailureKind::RateLimited => {
            "set `limits` in the profile to stay below the provider's limits, or `fallback` to another profile"
        }
        FailureKind::Stalled | FailureKind::Late => {
            "raise `timeouts` in the profile, or set `fallback` to another profile"
        }
        FailureKind::BadFormat => "describe the format of the reply in the prompt, or remove `responseFormat`",
        FailureKind::Provider
        | FailureKind::Rejected
        | FailureKind::Dropped
        | FailureKind::Malformed
        | FailureKind::Unknown => return None,
    })
}

/// Returns one sentence on how to fix the error; `None` if the message contains the fix.
pub(super) fn advice(error: &RunError) -> Option<&'static str> {
    Some(match error.code {
        RunErrorCode::NodeTimeout => {
            "raise the time limit (`timeoutMs`, `timeout`, --timeout), or handle the error with `onError`"
        }
        RunErrorCode::ScriptLimitExceeded => {
            "set `limits` of the SCRIPT node, or of `meta` in a .js file; an expression may take 1 s, CODE 5 s (docs/reference/limits.md)"
        }
        RunErrorCode::TemplateError => "provide the value in the input, or test for it: {{#if path}}...{{/if}}",
        RunErrorCode::NoRouteMatched => "give the ROUTE a `defaultTargetNodeId`",
        RunErrorCode::NoEdgeSatisfied => {
            "give the node an edge without `condition`: it is taken if no condition is true"
        }
        RunErrorCode::JoinConditionNotMet if error.cause.is_some() => {
            "the cause of a failed path is above; `onError` of the JOIN handles the failure"
        }
        RunErrorCode::JoinConditionNotMet => "`onError` of the JOIN handles the failure",
        RunErrorCode::JoinTimeout => {
            "raise `timeout` of the JOIN, use a strategy that needs fewer paths, or add `onError`"
        }
        RunErrorCode::MainThreadNotFound => "remove `mainPathId`: the first completed path is then the main path",
        RunErrorCode::VariableMergeConflict if has_detail(error, "reducers") => {
            "give the variable values of the type that its `reduce` combines, or another `reduce`"
        }
        RunErrorCode::VariableMergeConflict => {
            "set `mergeVariables: \"main\"`, or assign a different variable in each path"
        }
        RunErrorCode::ReadonlyVariable => "assign another variable, or remove `readonly`",
        RunErrorCode::LoopLimitExceeded => {
            "raise `maxIterations` of LOOP_START, or set `onLimit: \"finish\"` to continue after the limit"
        }
        RunErrorCode::TooManyItems => "raise `maxItems` of MAP, or pass fewer items",
        RunErrorCode::SessionBusy => "`pirn runs resume` or `pirn runs cancel` the run that comes first",
        RunErrorCode::StoreError => {
            "the stored steps are safe: resume the run with `pirn runs resume` once the store works again; a run that \
             `pirn runs list` does not show has none: start it again"
        }
        RunErrorCode::RunIdTaken => "use another --run-id, or omit it: then an id is generated",
        RunErrorCode::EffectInDoubt => {
            "check whether the call took effect; `inDoubt` of the node or tool sets how such a call is handled"
        }
        RunErrorCode::RunDiverged => {
            "resume the run with the recorded version of the script; `details` has the number of the first differing call"
        }
        RunErrorCode::MaxStepsExceeded => "add an exit to the loop; `config.maxSteps` is the limit (default 1000)",
        RunErrorCode::MemoryLimitExceeded => {
            "store less in variables, outputs and the conversation; `config.limits.runBytes` is the limit (default 256 MiB)"
        }
        RunErrorCode::TokenBudgetExceeded => "raise `config.budget`, or lower `maxTokens` of the calls",
        RunErrorCode::ModelError => {
            "check the profiles with `pirn models check`; a scripted profile needs a matching response"
        }
        RunErrorCode::InvalidInput => {
            "`inputSchema` of the workflow defines the input; pass it with --input JSON, @FILE or -"
        }
        RunErrorCode::SubAgentRoleMissing => "give the SUBGRAPH's `agent` a `role`",
        RunErrorCode::Overloaded => return limit(&error.message),
        RunErrorCode::NodeFailed
        | RunErrorCode::ScriptError
        | RunErrorCode::UnknownName
        | RunErrorCode::ConversationManagerMergeFailed
        | RunErrorCode::ToolError
        | RunErrorCode::ToolRoundsExceeded
        | RunErrorCode::WorkflowNotFound
        | RunErrorCode::Cancelled
        | RunErrorCode::TriggeredEventsExceeded
        | RunErrorCode::ActorPanicked => return None,
    })
}

/// Returns advice for the limits that a workflow sets. The messages of the others contain their remedy.
fn limit(message: &str) -> Option<&'static str> {
    if message.contains("`dynamic.limits.agents`") {
        Some("raise `dynamic.limits.agents` of the LLM node that submits the workflow (default 100)")
    } else if message.starts_with("threads nest deeper") {
        Some("raise `config.maxDepth` of the main workflow (default 10)")
    } else {
        None
    }
}

fn has_detail(error: &RunError, name: &str) -> bool {
    let details = error.details.as_ref();
    details.is_some_and(|details| details.get(name).is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_advice_for_a_merge_conflict_fits_its_reason() {
        let of = |details: Value| {
            let error = RunError::new(RunErrorCode::VariableMergeConflict, "m");
            advice(&error.with_details(details)).unwrap_or_default()
        };
        assert!(of(json!({"variables": {"n": [1, 2]}})).contains("mergeVariables"));
        let reduced = of(json!({"reducers": {"n": "sum"}}));
        assert!(
            reduced.contains("`reduce`") && !reduced.contains("mergeVariables"),
            "{reduced}"
        );
    }

    #[test]
    fn the_advice_for_an_overload_names_the_limit_that_was_reached() {
        let of = |message: &str| advice(&RunError::new(RunErrorCode::Overloaded, message));
        let depth = of("threads nest deeper than 10").unwrap_or_default();
        assert!(depth.contains("`config.maxDepth`"), "{depth}");
        let agents = "node n needs 1 of the agents that `dynamic.limits.agents` allows, and 0 are left";
        let agents = of(agents).unwrap_or_default();
        assert!(
            agents.contains("`dynamic.limits.agents`") && !agents.contains("maxDepth"),
            "{agents}"
        );
        assert_eq!(of("more than 1000000 scripts are queued"), None);
    }

    #[test]
    fn the_advice_for_a_join_mentions_causes_only_if_there_is_one() {
        let join = RunError::new(RunErrorCode::JoinConditionNotMet, "ANY_FAILED can no longer hold");
        assert!(!advice(&join).unwrap_or_default().contains("cause"));
        let failed = join.caused_by(RunError::new(RunErrorCode::NodeFailed, "a path failed"));
        assert!(advice(&failed).unwrap_or_default().contains("above"));
    }
}
