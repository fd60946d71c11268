//! Help texts by fault code, for faults without a specific help text.

use pirn_definition::definition::{Fault, FaultCode};

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
            "give one of them another id, and update the references to it"
        }
        FaultCode::InvalidEdge => "remove the edge, or give it another target",
        FaultCode::MissingStart => r#"add {"id": "start", "type": "START"}, and an edge from it to the first node"#,
        FaultCode::MultipleStart => "use one START, followed by a ROUTE or a FORK for several paths",
        FaultCode::MissingEnd => r#"add {"id": "end", "type": "END"}, and an edge to it from the last node"#,
        FaultCode::UnreachableNode => "add an edge to it from a reachable node, or remove it",
        FaultCode::DeadEnd => "add an edge `from` it `to` a node that leads to an END",
        FaultCode::InvalidForkPathIds => {
            "`forkPathIds` and `childNodeIds` have equal lengths: each path starts at the node at its index"
        }
        FaultCode::DuplicateForkPathId => "path ids are unique in a workflow: rename one of them",
        FaultCode::ForkJoinMismatch => "copy the `forkPathIds` of the FORK to its JOIN",
        FaultCode::UnpairedFork => "copy the `forkPathIds` to the JOIN that its branches lead to",
        FaultCode::UnpairedJoin => "copy the `forkPathIds` to the FORK before it",
        FaultCode::ForkJoinNotReachable => {
            "lead every path of a branch to its JOIN; place nodes that follow all branches after the JOIN"
        }
        FaultCode::DuplicateLoopId => "give each loop a unique `loopId`",
        FaultCode::UnpairedLoopStart | FaultCode::UnpairedLoopEnd => {
            "a loop is a LOOP_START and a LOOP_END with equal `loopId`"
        }
        FaultCode::LoopNotClosed => "lead it to the LOOP_END, whose `breakCondition` can end the loop early",
        FaultCode::SubgraphCycle => "repeat nodes by a loop instead: LOOP_START and LOOP_END, or an edge back",
        FaultCode::InvalidHistoryOptions => {
            r#"one of lastN, lastNByRole, byRole, range, rangeByRole, such as {"lastN": 5}"#
        }
        FaultCode::UnknownFunction => {
            "functions are registered by a program that embeds Pirn (`EngineBuilder::function`); JavaScript goes into `code`"
        }
        FaultCode::UnknownProfile => "`pirn models check` lists the profiles; add a new one to pirn.toml",
        FaultCode::BudgetWithoutMaximum => {
            "set `maxTokens` in the `parameters` of the node, or of its profile and the profile's fallbacks"
        }
        FaultCode::BudgetWithoutPrices => {
            "give the profile and its fallbacks `prices`, or limit `tokens` instead of `cost`"
        }
        FaultCode::AmbiguousHistoryOptions => "remove all but one",
        FaultCode::IgnoredEdge => "remove the edge; or give the node an outgoing edge, so that it is called",
        FaultCode::JoinNeverSucceeds | FaultCode::ThresholdOutOfReach => {
            "change `joinStrategy`, lower `threshold`, or change the paths"
        }
        FaultCode::BranchNeverStarts => {
            r#"`"forkStrategy": "parallel"` starts all branches at once; or change `joinStrategy`"#
        }
        FaultCode::LoopWithoutExit => "give the loop an exit: an edge with a condition that can become true",
        FaultCode::TriggerNeverFires => "docs/reference/events.md lists every event, its cause and its fields",
        FaultCode::TriggerFiresItself => {
            "limit it with `maxTriggers`, or with an `expression` that is false for the events it causes"
        }
        FaultCode::WorkflowRing => "break the cycle: remove a trigger, or add an `expression` that becomes false",
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
        | FaultCode::UnreachableRoute
        | FaultCode::UncacheablePrompt => return None,
    })
}
