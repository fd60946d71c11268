//! Advice after a failed run, by the code of its error.

use pirn::{RunError, RunErrorCode};
use pirn_core::model_call::{FailureKind, ModelFailure};

/// Returns advice for a model that did not answer, by the cause.
pub(super) fn of_model(error: &RunError) -> Option<&'static str> {
    if error.code != RunErrorCode::ModelError {
        return None;
    }
    Some(match ModelFailure::of(error).kind {
        FailureKind::Key => {
            "is the variable that the profile names set where `pirn` is started (export NAME=...), and is the key in it good?"
        }
        FailureKind::Unreachable => {
            "is the profile's `endpoint` right, and does anybody listen there? `pirn models check` tries it"
        }
        FailureKind::RateLimited => {
            "`limits` of the profile keeps it below what the provider allows; `fallback` names another"
        }
        FailureKind::Stalled | FailureKind::Late => {
            "`timeouts` of the profile gives it longer; `fallback` names another"
        }
        FailureKind::BadFormat => "say in the prompt what the reply is to look like, or take `responseFormat` away",
        FailureKind::Provider
        | FailureKind::Rejected
        | FailureKind::Dropped
        | FailureKind::Malformed
        | FailureKind::Unknown => return None,
    })
}

/// Returns one sentence on how to fix the error; `None` if the message contains the fix.
pub(super) fn advice(code: RunErrorCode) -> Option<&'static str> {
    Some(match code {
        RunErrorCode::NodeTimeout => {
            "give it more time (`timeoutMs`, `timeout`, --timeout), or say where to go instead: `onError`"
        }
        RunErrorCode::ScriptLimitExceeded => {
            "an expression has 1 s, CODE 5 s; docs/reference/limits.md lists every limit"
        }
        RunErrorCode::TemplateError => {
            "give the value in the input, or ask whether it is there: {{#if path}}...{{/if}}"
        }
        RunErrorCode::NoRouteMatched => "give the ROUTE a `defaultTargetNodeId`",
        RunErrorCode::NoEdgeSatisfied => "give the node an edge without `condition`: it is taken when no other holds",
        RunErrorCode::JoinConditionNotMet => {
            "the causes below say why paths failed; `onError` of the JOIN goes on without them"
        }
        RunErrorCode::JoinTimeout => "a longer `timeout` of the JOIN, a strategy that needs fewer paths, or `onError`",
        RunErrorCode::MainThreadNotFound => "leave out `mainPathId`: then the first path that completed counts",
        RunErrorCode::VariableMergeConflict => "`mergeVariables: \"main\"`, or a variable of its own for each path",
        RunErrorCode::ReadonlyVariable => "assign another variable, or take `readonly` away",
        RunErrorCode::LoopLimitExceeded => {
            "give LOOP_START a larger `maxIterations`, or `onLimit: \"finish\"` to go on with the items it has had"
        }
        RunErrorCode::TooManyItems => "give MAP a larger `maxItems`, or hand it fewer",
        RunErrorCode::SessionBusy => "`pirn runs resume` or `pirn runs cancel` the run that comes first",
        RunErrorCode::StoreError => {
            "what was durable stays: `pirn runs resume` goes on with the run once the store works again"
        }
        RunErrorCode::RunIdTaken => "give another --run-id, or none: then the run gets one",
        RunErrorCode::EffectInDoubt => {
            "look whether it was done; `inDoubt` of the node or tool says what happens with such a call"
        }
        RunErrorCode::MaxStepsExceeded => "a loop needs a way out; `config.maxSteps` is the limit (default 1000)",
        RunErrorCode::MemoryLimitExceeded => {
            "keep less in variables, outputs and the conversation; `config.limits.runBytes` is the limit (default 256 MiB)"
        }
        RunErrorCode::TokenBudgetExceeded => {
            "a larger `config.budget`, or calls that may use less: a smaller `maxTokens`"
        }
        RunErrorCode::ModelError => {
            "`pirn models check` says which profiles work; a scripted one needs a response that fits"
        }
        RunErrorCode::InvalidInput => {
            "`inputSchema` of the workflow says what an input is; give it by --input JSON, @FILE or -"
        }
        RunErrorCode::SubAgentRoleMissing => "give the SUBGRAPH's `agent` a `role`",
        RunErrorCode::Overloaded => "`config.maxDepth` bounds how deep threads nest (default 10)",
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
