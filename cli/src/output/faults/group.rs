//! Separates causes from consequences among faults: a misspelt target also makes nodes unreachable and forks unpaired.

use std::collections::BTreeMap;

use pirn::check::Fault;
use pirn_definition::definition::FaultCode;

use crate::output::terminal::counted;

/// The faults of a set of files, separated.
pub(super) struct GroupedFaults<'f> {
    /// Faults to fix first.
    pub(super) causes: Vec<&'f Fault>,
    /// Faults that may disappear once the causes are fixed.
    following: Vec<&'f Fault>,
}

impl<'f> GroupedFaults<'f> {
    pub(super) fn of(faults: &'f [Fault]) -> Self {
        let has_cause = |fault: &Fault| {
            faults
                .iter()
                .any(|other| is_cause_of(other.code, fault.code) && same_workflow(other, fault))
        };
        let (following, causes) = faults.iter().partition(|fault| has_cause(fault));
        Self { causes, following }
    }

    /// Formats `3 more errors follow from these: 2 UNREACHABLE_NODE, 1 DEAD_END`.
    pub(super) fn following(&self) -> Option<String> {
        let mut by_code: BTreeMap<&str, usize> = BTreeMap::new();
        for fault in &self.following {
            *by_code.entry(fault.code.as_str()).or_default() += 1;
        }
        let list: Vec<String> = by_code.iter().map(|(code, count)| format!("{count} {code}")).collect();
        let count = self.following.len();
        let verb = if count == 1 { "follows" } else { "follow" };
        (count > 0).then(|| {
            format!(
                "{} {verb} from these: {}",
                counted(count, "more error"),
                list.join(", ")
            )
        })
    }
}

/// True if fixing `cause` may fix `fault`. Missing and misspelt names rank before the shape of the graph, and the shape before the
/// pairs of forks.
fn is_cause_of(cause: FaultCode, fault: FaultCode) -> bool {
    rank(fault) != INDEPENDENT && rank(cause) < rank(fault)
}

fn rank(code: FaultCode) -> u8 {
    match code {
        FaultCode::UnreachableNode | FaultCode::DeadEnd => 2,
        FaultCode::UnpairedFork
        | FaultCode::UnpairedJoin
        | FaultCode::ForkJoinNotReachable
        | FaultCode::InvalidTriggeredWorkflow => 1,
        FaultCode::UnknownField
        | FaultCode::MissingField
        | FaultCode::InvalidValue
        | FaultCode::InvalidJson
        | FaultCode::DuplicateField
        | FaultCode::DuplicateNodeId
        | FaultCode::UnknownNodeReference
        | FaultCode::InvalidEdge
        | FaultCode::InvalidForkPathIds
        | FaultCode::ForkJoinMismatch
        | FaultCode::DuplicateForkPathId => 0,
        // Neither a cause nor a consequence of other faults.
        _ => INDEPENDENT,
    }
}

/// Rank of a fault that is neither a cause nor a consequence of others.
const INDEPENDENT: u8 = u8::MAX;

fn same_workflow(one: &Fault, other: &Fault) -> bool {
    one.file == other.file && workflow_of(&one.pointer) == workflow_of(&other.pointer)
}

/// Returns the prefix of a pointer that identifies the workflow: `/workflows/2`, `/0`, or nothing if the file is one workflow.
fn workflow_of(pointer: &str) -> &str {
    let is_in_list = pointer.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    let steps = if pointer.starts_with("/workflows/") {
        2
    } else {
        usize::from(is_in_list)
    };
    let end = pointer
        .match_indices('/')
        .nth(steps)
        .map_or(pointer.len(), |(at, _)| at);
    if steps == 0 { "" } else { &pointer[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: FaultCode, pointer: &str) -> Fault {
        Fault {
            code,
            message: String::new(),
            pointer: pointer.to_owned(),
            file: None,
            position: None,
            help: None,
        }
    }

    #[test]
    fn a_misspelt_target_folds_only_the_faults_that_follow_from_it_in_the_same_workflow() {
        let faults = [
            fault(FaultCode::UnreachableNode, "/workflows/0/nodes/3"),
            fault(FaultCode::UnknownNodeReference, "/workflows/0/edges/1/to"),
            fault(FaultCode::UnreachableNode, "/workflows/1/nodes/3"),
            fault(FaultCode::InvalidTimeout, "/workflows/0/nodes/2/config/timeout"),
        ];
        let grouped = GroupedFaults::of(&faults);
        let causes: Vec<&str> = grouped.causes.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(
            causes,
            [
                "/workflows/0/edges/1/to",
                "/workflows/1/nodes/3",
                "/workflows/0/nodes/2/config/timeout"
            ]
        );
        assert_eq!(
            grouped.following().as_deref(),
            Some("1 more error follows from these: 1 UNREACHABLE_NODE")
        );
    }

    #[test]
    fn an_independent_fault_is_a_cause() {
        let faults = [fault(FaultCode::UnreachableNode, "/nodes/3")];
        let grouped = GroupedFaults::of(&faults);
        assert_eq!((grouped.causes.len(), grouped.following()), (1, None));
    }
}
