//! Conditions with a constant value.

use std::collections::BTreeSet;

use crate::graph::{Edge, Graph, NodeIx, SnippetIx};
use crate::script::{Plain, is_truthy};

/// Truth of a condition, as far as its text determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) enum Truth {
    /// True in every run.
    Always,
    /// False in every run.
    Never,
    /// Depends on the run.
    Open,
}

/// Returns the truth of a condition: only a literal determines it.
pub(super) fn truth(text: &str) -> Truth {
    match Plain::read(text).as_ref().and_then(Plain::literal) {
        Some(value) if is_truthy(value) => Truth::Always,
        Some(_) => Truth::Never,
        None => Truth::Open,
    }
}

/// Returns the truth of an optional condition; an absent one is always true.
pub(in crate::analysis) fn truth_of(text: Option<&str>) -> Truth {
    text.map_or(Truth::Always, truth)
}

/// True if two evaluations in succession return equal values.
pub(in crate::analysis) fn is_steady(text: &str) -> bool {
    let text = without_comparisons(text);
    !["random", "Date", "++", "--", "="]
        .iter()
        .any(|sign| text.contains(sign))
}

/// Returns the text without `==`, `!=`, `<=`, `>=` and `=>`, so that a remaining `=` is an assignment.
fn without_comparisons(text: &str) -> String {
    ["===", "!==", "==", "!=", "<=", ">=", "=>"]
        .iter()
        .fold(text.to_owned(), |text, sign| text.replace(sign, " "))
}

/// The transitions out of a node that some run takes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Choices {
    /// Targets, in the order of evaluation.
    pub(in crate::analysis) targets: Vec<NodeIx>,
    /// True if the choice can fail: a condition must be evaluated, or no condition is certain to be true.
    pub(super) can_fail: bool,
}

/// Returns the possible choices among transitions, of which the first with a true condition is taken.
pub(super) fn choices(
    graph: &Graph,
    transitions: impl Iterator<Item = (Option<SnippetIx>, NodeIx)>,
    default: Option<NodeIx>,
) -> Choices {
    let mut found = Choices::default();
    let mut seen = BTreeSet::new();
    for (condition, target) in transitions {
        let text = condition.map(|condition| &*graph.snippet(condition).source);
        match truth_of(text) {
            Truth::Never => {}
            Truth::Open => {
                found.can_fail = true;
                if text.is_some_and(|text| is_steady(text) && !seen.insert(text.trim())) {
                    continue;
                }
                found.targets.push(target);
            }
            Truth::Always => {
                found.targets.push(target);
                return found;
            }
        }
    }
    match default {
        Some(target) => found.targets.push(target),
        None => found.can_fail = true,
    }
    found
}

/// Returns the choices among a node's edges.
pub(super) fn edge_choices(graph: &Graph, edges: &[Edge]) -> Choices {
    choices(graph, edges.iter().map(|edge| (edge.condition, edge.target)), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_truth_of_a_literal_condition_is_determined() {
        for text in ["true", " 1 ", "'yes'", "-2.5"] {
            assert_eq!(truth(text), Truth::Always, "{text}");
        }
        for text in ["false", "0", "''", "null", "undefined"] {
            assert_eq!(truth(text), Truth::Never, "{text}");
        }
        for text in ["input", "{{ok}}", "1 === 1", "!0", "NaN", ""] {
            assert_eq!(truth(text), Truth::Open, "{text}");
        }
        assert_eq!(truth_of(None), Truth::Always);
    }

    #[test]
    fn an_expression_that_may_change_between_evaluations_is_not_steady() {
        for text in ["Math.random() < 0.5", "n++ < 3", "x = 1", "Date.now() > t"] {
            assert!(!is_steady(text), "{text}");
        }
        for text in ["a === b", "a >= 1 && b != 2", "list.some(x => x)"] {
            assert!(is_steady(text), "{text}");
        }
    }
}
