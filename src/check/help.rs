//! Help texts by fault code, for faults without a specific help text.

use pirn_core::definition::{Fault, FaultCode};

/// Adds a help text to faults without one.
pub(super) fn add(faults: &mut [Fault]) {
    for fault in faults.iter_mut().filter(|fault| fault.help.is_none()) {
        fault.help = of(fault.code).map(str::to_owned);
    }
}

/// Returns one sentence of help, or `None` if the message already contains it.
fn of(code: FaultCode) -> Option<&'static str> {
    Some(match code {
        FaultCode::DuplicateWorkflowId | FaultCode::DuplicateNodeId | FaultCode::DuplicateTriggerId => {
            "give one of them another id, also where it is named"
        }
        FaultCode::InvalidEdge => "take the edge away, or lead it elsewhere",
        FaultCode::MissingStart => {
            r#"add {"id": "start", "type": "START"}, and an edge from it to the node that comes first"#
        }
        FaultCode::MultipleStart => "keep one, and let a ROUTE or a FORK after it choose the ways",
        FaultCode::MissingEnd => r#"add {"id": "end", "type": "END"}, and an edge to it from the node that comes last"#,
        FaultCode::UnreachableNode => "lead an edge to it from a node that is reached, or take it away",
        FaultCode::DeadEnd => "give it an edge, `from` it `to` a node that leads to an END",
        FaultCode::InvalidForkPathIds => {
            "`forkPathIds` and `childNodeIds` are lists of one length: the path at each place begins at the node there"
        }
        FaultCode::DuplicateForkPathId => "path ids are the whole workflow's: give each path one of its own",
        FaultCode::ForkJoinMismatch => "copy the `forkPathIds` of the FORK to its JOIN",
        FaultCode::UnpairedFork => "give the JOIN that its branches lead to the same `forkPathIds`",
        FaultCode::UnpairedJoin => "give the FORK before it the same `forkPathIds`",
        FaultCode::ForkJoinNotReachable => {
            "lead every way of a branch to its JOIN; what is to follow all of them comes after the JOIN"
        }
        FaultCode::DuplicateLoopId => "give each loop a `loopId` of its own",
        FaultCode::UnpairedLoopStart | FaultCode::UnpairedLoopEnd => {
            "a loop is a LOOP_START and a LOOP_END with the same `loopId`"
        }
        FaultCode::LoopNotClosed => "lead it to the LOOP_END: a `breakCondition` there ends the loop early",
        FaultCode::SubgraphCycle => "what is to happen again is a loop: LOOP_START and LOOP_END, or an edge back",
        FaultCode::InvalidHistoryOptions => {
            r#"one of lastN, lastNByRole, byRole, range, rangeByRole, such as {"lastN": 5}"#
        }
        FaultCode::UnknownFunction => {
            "functions are registered by a program that embeds Pirn (`EngineBuilder::function`); JavaScript goes into `code`"
        }
        FaultCode::UnknownProfile => "`pirn models check` lists the profiles there are; a new one goes into pirn.toml",
        FaultCode::BudgetWithoutMaximum => {
            "give `maxTokens` among the `parameters` of the node or of its profile, or of the profile's fallbacks"
        }
        FaultCode::BudgetWithoutPrices => {
            "give the profile, and its fallbacks, `prices`; or limit `tokens` in place of `cost`"
        }
        FaultCode::AmbiguousHistoryOptions => "keep one of them",
        FaultCode::IgnoredEdge => "take the edge away; or give the node an edge, so that it is called",
        FaultCode::JoinNeverSucceeds | FaultCode::ThresholdOutOfReach => {
            "another `joinStrategy`, a smaller `threshold`, or paths that can end so"
        }
        FaultCode::BranchNeverStarts => r#"`"forkStrategy": "parallel"` starts all at once; or another `joinStrategy`"#,
        FaultCode::LoopWithoutExit => "give the loop a way out: an edge whose condition comes to hold",
        FaultCode::UnreachableRoute => "take it away, or change the order: highest `priority` first, then as listed",
        FaultCode::TriggerNeverFires => "docs/reference/events.md has every event, what raises it, and its fields",
        FaultCode::TriggerFiresItself => {
            "bound it: an `expression` that does not hold for what it causes, or `maxTriggers`"
        }
        FaultCode::WorkflowRing => "break the ring: one trigger less, or an `expression` that comes to fail",
        // The message or a separate help text explains the fault.
        FaultCode::InvalidJson
        | FaultCode::LimitExceeded
        | FaultCode::DuplicateField
        | FaultCode::UnknownField
        | FaultCode::MissingField
        | FaultCode::InvalidValue
        | FaultCode::UnknownNodeReference
        | FaultCode::MainPathIdNotFound
        | FaultCode::InvalidJoinStrategy
        | FaultCode::InvalidThreshold
        | FaultCode::InvalidTimeout
        | FaultCode::UnknownWorkflowReference
        | FaultCode::InvalidTriggeredWorkflow
        | FaultCode::InvalidCallback
        | FaultCode::InvalidSchedule
        | FaultCode::InvalidExpression
        | FaultCode::UnknownName
        | FaultCode::InvalidTemplate
        | FaultCode::InvalidSchema
        | FaultCode::InvalidProfile
        | FaultCode::UnknownTool
        | FaultCode::UnknownStrategy
        | FaultCode::ProgramNotFound
        | FaultCode::UnknownTokenizer
        | FaultCode::LegacyForm
        | FaultCode::TokenLimitWithoutCompression
        | FaultCode::UncacheablePrompt => return None,
    })
}
