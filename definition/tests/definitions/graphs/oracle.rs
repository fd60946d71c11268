//! Random graphs against a simple reading of SPEC section 2: reachability, dead ends, and regions of branches.

use std::collections::{BTreeMap, BTreeSet};

use pirn_definition::definition::FaultCode;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::definitions::fixtures::{build, flow, fork, idle, join, node, shown};

/// Returns the nodes that `from` can reach, including `from`.
fn reach(edges: &BTreeSet<(usize, usize)>, from: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::from([from]);
    loop {
        let more: Vec<usize> = edges
            .iter()
            .filter(|(a, b)| found.contains(a) && !found.contains(b))
            .map(|(_, b)| *b)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

proptest! {
    /// Node 0 is START, the last is END. Without forks, a node is unreachable iff START does not reach it; there is a
    /// dead end iff a reachable node does not reach END, and every such node leads to a reported one.
    #[test]
    fn reachability_and_dead_ends_match_a_naive_search(
        count in 2_usize..9,
        drawn in prop::collection::vec((0_usize..9, 0_usize..9), 0..16),
    ) {
        let end = count - 1;
        let edges: BTreeSet<(usize, usize)> =
            drawn.into_iter().filter(|(a, b)| *a < end && *b < count && *b > 0).collect();
        let nodes: Vec<Value> = (0..count)
            .map(|place| match place {
                0 => node("0", "START"),
                place if place == end => node(&place.to_string(), "END"),
                place => idle(&place.to_string()),
            })
            .collect();
        let written: Vec<String> = edges.iter().map(|(a, b)| format!("{a}>{b}")).collect();
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        let compiled = build(flow(&json!(nodes), &written).to_string());

        let reachable = reach(&edges, 0);
        let dead: BTreeSet<usize> =
            reachable.iter().copied().filter(|place| !reach(&edges, *place).contains(&end)).collect();
        let found = |code: FaultCode| -> BTreeSet<usize> {
            compiled.faults.iter().filter(|fault| fault.code == code)
                .map(|fault| fault.pointer.trim_start_matches("/nodes/").parse().expect("a node")).collect()
        };
        let unreachable: BTreeSet<usize> = (0..count).filter(|place| !reachable.contains(place)).collect();
        prop_assert_eq!(found(FaultCode::UnreachableNode), unreachable);
        let reported = found(FaultCode::DeadEnd);
        prop_assert!(reported.is_subset(&dead), "{reported:?} of {dead:?}");
        for place in &dead {
            prop_assert!(!reach(&edges, *place).is_disjoint(&reported), "{place} leads to no report in {reported:?}");
        }
        prop_assert_eq!(compiled.faults.is_empty(), dead.is_empty() && reachable.len() == count);
    }

    /// One FORK of two paths in a random graph. It is valid iff a simple search shows: no branch reaches END, START's side or the
    /// FORK itself before the JOIN; only branches enter the JOIN; and every walk can end.
    #[test]
    fn fork_regions_match_a_naive_search(
        more in prop::collection::vec((0_usize..8, 0_usize..8), 0..4),
        fewer in prop::collection::vec(0_usize..6, 0..2),
    ) {
        // 0 START, 1 FORK, 2 and 3 its children, 4 JOIN, 5 in a branch, 6 after the JOIN, 7 END: valid without changes
        let (start, fork_at, children, join_at, end) = (0, 1, [2, 3], 4, 7);
        let standing = [(0, 1), (2, 4), (3, 5), (5, 4), (4, 6), (6, 7)];
        let kept = standing.into_iter().enumerate().filter(|(place, _)| !fewer.contains(place)).map(|(_, edge)| edge);
        let added = more.into_iter().filter(|(a, b)| *a != fork_at && *a != end && *b != start);
        let edges: BTreeSet<(usize, usize)> = kept.chain(added).collect();
        let nodes = json!([node("0", "START"), fork("1", &["p", "q"], &["2", "3"]), idle("2"), idle("3"), join("4", &["p", "q"]),
            idle("5"), idle("6"), node("7", "END")]);
        let mut written: Vec<String> = edges.iter().map(|(a, b)| format!("{a}>{b}")).collect();
        written.extend(children.iter().map(|child| format!("{fork_at}>{child}")));
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        let compiled = build(flow(&nodes, &written).to_string());

        // the parent steps from the FORK to the JOIN; a branch stops at the JOIN
        let mut parent = edges.clone();
        parent.insert((fork_at, join_at));
        let main = reach(&parent, start);
        let inner: BTreeSet<(usize, usize)> = edges.iter().copied().filter(|(a, _)| *a != join_at).collect();
        let forked = main.contains(&fork_at);
        let mut branch = BTreeSet::new();
        if forked {
            for child in children {
                branch.extend(reach(&inner, child));
            }
        }
        let walked: BTreeSet<usize> = main.union(&branch).copied().collect();
        let into_join = edges.iter().any(|(a, b)| *b == join_at && main.contains(a) && *a != fork_at);
        let crossing = branch.iter().any(|place| *place != join_at && (main.contains(place) || *place == end || *place == fork_at));
        let stuck_main = main.iter().any(|place| !reach(&parent, *place).contains(&end));
        let stuck_branch = branch.iter().any(|place| !reach(&inner, *place).contains(&join_at));
        let valid = walked.len() == 8 && !into_join && !crossing && !stuck_main && !stuck_branch;
        prop_assert_eq!(compiled.faults.is_empty(), valid,
            "edges {:?}: main {:?}, branch {:?}\n{}", edges, main, branch, shown(&compiled.faults));
    }

    /// Random lists in FORKs and JOINs: pairing terminates, each JOIN has at most one FORK, and equal unique lists are paired
    /// without a fault.
    #[test]
    fn forks_and_joins_are_paired_by_their_path_lists(lists in prop::collection::vec(prop::collection::vec(0_u8..6, 1..4), 1..5),
        joined in prop::collection::vec(prop::collection::vec(0_u8..6, 1..4), 1..5))
    {
        let words = |list: &[u8]| -> Vec<String> { list.iter().map(|id| format!("p{id}")).collect() };
        let mut nodes = vec![node("s", "START"), node("e", "END")];
        let mut edges = Vec::new();
        let mut last = "s".to_owned();
        for (place, list) in lists.iter().enumerate() {
            let children = vec![format!("c{place}"); list.len()];
            nodes.push(json!({"id": format!("f{place}"), "type": "FORK", "config": {"forkPathIds": words(list), "childNodeIds": children}}));
            nodes.push(idle(&format!("c{place}")));
            edges.push(format!("{last}>f{place}"));
            edges.push(format!("f{place}>c{place}"));
            last = format!("c{place}");
        }
        for (place, list) in joined.iter().enumerate() {
            nodes.push(json!({"id": format!("j{place}"), "type": "JOIN", "config": {"forkPathIds": words(list), "joinStrategy": "ALL_COMPLETED"}}));
            edges.push(format!("{last}>j{place}"));
            last = format!("j{place}");
        }
        edges.push(format!("{last}>e"));
        let edges: Vec<&str> = edges.iter().map(String::as_str).collect();
        let compiled = build(flow(&json!(nodes), &edges).to_string());
        let count = |code: FaultCode| compiled.faults.iter().filter(|fault| fault.code == code).count();

        let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
        for id in lists.iter().flatten() {
            *seen.entry(*id).or_default() += 1;
        }
        prop_assert_eq!(count(FaultCode::DuplicateForkPathId), seen.values().map(|times| times - 1).sum::<usize>());
        // Unpaired FORKs and JOINs are equal in number, at most the number of lists.
        let pairs = lists.len() - count(FaultCode::UnpairedFork);
        prop_assert_eq!(pairs, joined.len() - count(FaultCode::UnpairedJoin));
        let identical = lists.iter().filter(|list| joined.contains(list)).collect::<BTreeSet<_>>().len();
        prop_assert!(pairs >= identical, "{pairs} pairs, {identical} identical lists");
        prop_assert!(count(FaultCode::ForkJoinMismatch) <= pairs - identical.min(pairs));
    }
}
