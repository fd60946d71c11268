//! The static analysis: joins that never succeed and paths that never start, against every order in which the join machine itself can be
//! fed with every end that each path can have.

use std::collections::BTreeSet;

use pirn_core::join::{ForkJoinMachine, Input, PathEnd, Verdict};
use pirn_definition::analysis::{Analysis, analyse};
use pirn_definition::definition::{FaultCode, Loaded, SourceFile};
use pirn_definition::graph::{CompileContext, Compiled, Graph, compile_loaded};
use proptest::prelude::*;
use serde_json::{Value, json};

const NEVER: [FaultCode; 2] = [FaultCode::JoinNeverSucceeds, FaultCode::ThresholdOutOfReach];

/// A path: a leaf that can only complete, only fail, or both; or a nested fork.
#[derive(Clone, Debug)]
enum PathSpec {
    Completes,
    Fails,
    Both,
    Fork(ForkSpec),
}

#[derive(Clone, Debug)]
struct ForkSpec {
    paths: Vec<PathSpec>,
    strategy: usize,
    threshold: usize,
    serial: bool,
    main: Option<usize>,
}

const STRATEGIES: [&str; 5] = [
    "ALL_COMPLETED",
    "ANY_COMPLETED",
    "ALL_FAILED",
    "ANY_FAILED",
    "SUCCESS_COUNT_THRESHOLD",
];

fn leaf() -> impl Strategy<Value = PathSpec> {
    prop_oneof![Just(PathSpec::Completes), Just(PathSpec::Fails), Just(PathSpec::Both)]
}

fn fork_of(path: impl Strategy<Value = PathSpec>, mains: bool) -> impl Strategy<Value = ForkSpec> {
    let main = prop::option::of(0..4_usize).prop_map(move |main| main.filter(|_| mains));
    (
        prop::collection::vec(path, 1..5),
        0..5_usize,
        0..4_usize,
        any::<bool>(),
        main,
    )
        .prop_map(|(paths, strategy, threshold, serial, main)| ForkSpec {
            threshold: 1 + threshold % paths.len(),
            main: main.map(|main| main % paths.len()),
            paths,
            strategy,
            serial,
        })
}

/// Adds a fork's nodes and edges, and returns its first and last node.
fn write(fork: &ForkSpec, nodes: &mut Vec<Value>, edges: &mut Vec<Value>) -> (String, String) {
    let number = nodes.len();
    let (first, last) = (format!("f{number}"), format!("j{number}"));
    let ids: Vec<String> = (0..fork.paths.len()).map(|path| format!("p{number}-{path}")).collect();
    nodes.push(json!(null));
    let mut children = Vec::new();
    for (place, path) in fork.paths.iter().enumerate() {
        let id = format!("n{number}-{place}");
        let leaf = match path {
            PathSpec::Completes => json!({"id": id, "type": "WAIT", "config": {"seconds": 1}}),
            PathSpec::Fails => {
                json!({"id": id, "type": "SUBGRAPH", "config": {"subgraphId": "helper", "agent": {"id": "x"}}})
            }
            PathSpec::Both => json!({"id": id, "type": "CODE", "config": {"code": "return 1"}}),
            PathSpec::Fork(inner) => {
                let (inner_first, inner_last) = write(inner, nodes, edges);
                edges.push(json!({"from": inner_last, "to": last}));
                edges.push(json!({"from": first, "to": inner_first}));
                children.push(inner_first);
                continue;
            }
        };
        nodes.push(leaf);
        edges.push(json!({"from": first, "to": id}));
        edges.push(json!({"from": id, "to": last}));
        children.push(id);
    }
    let strategy = if fork.serial { "serial" } else { "parallel" };
    nodes[number] = json!({"id": first, "type": "FORK",
        "config": {"forkPathIds": ids, "childNodeIds": children, "forkStrategy": strategy}});
    let mut join = json!({"forkPathIds": ids, "joinStrategy": STRATEGIES[fork.strategy]});
    if fork.strategy == 4 {
        join["threshold"] = json!(fork.threshold);
    }
    if let Some(main) = fork.main {
        join["mainPathId"] = json!(ids[main]);
    }
    nodes.push(json!({"id": last, "type": "JOIN", "config": join}));
    (first, last)
}

fn workflow(fork: &ForkSpec, at_once: Option<u32>) -> Value {
    let (mut nodes, mut edges) = (vec![json!({"id": "s", "type": "START"})], Vec::new());
    let (first, last) = write(fork, &mut nodes, &mut edges);
    nodes.push(json!({"id": "e", "type": "END"}));
    edges.push(json!({"from": "s", "to": first}));
    edges.push(json!({"from": last, "to": "e"}));
    let mut workflow = json!({"id": "w", "nodes": nodes, "edges": edges});
    if let Some(at_once) = at_once {
        workflow["config"] = json!({"maxConcurrentBranches": at_once});
    }
    json!([workflow, trivial("helper")])
}

/// The outcomes of every order of every end.
#[derive(Default)]
struct Possible {
    succeeds: bool,
    fails: bool,
    started: BTreeSet<usize>,
}

fn try_all(machine: &ForkJoinMachine, ends: &[Vec<PathEnd>], found: &mut Possible) {
    let live: Vec<usize> = machine.live().collect();
    found.started.extend(&live);
    match machine.verdict() {
        Some(Verdict::Succeeded { .. }) => found.succeeds = true,
        Some(_) => found.fails = true,
        None => {
            for path in live {
                for end in &ends[path] {
                    let mut next = machine.clone();
                    next.step(Input::Ended { path, end: *end }, &mut Vec::new())
                        .expect("it runs");
                    try_all(&next, ends, found);
                }
            }
        }
    }
}

/// Reports of this fork and those inside, as the pointers' node places; and the ends that its JOIN can have.
fn judge(
    fork: &ForkSpec,
    graph: &Graph,
    at_once: Option<u32>,
    next: &mut u32,
    reports: &mut (BTreeSet<u32>, BTreeSet<(u32, usize)>),
) -> Vec<PathEnd> {
    let fork_node = *next;
    *next += 1;
    let mut ends = Vec::new();
    for path in &fork.paths {
        let (own, inner) = match path {
            PathSpec::Completes => (vec![PathEnd::Completed], false),
            PathSpec::Fails => (vec![PathEnd::Failed], false),
            PathSpec::Both => (vec![PathEnd::Completed, PathEnd::Failed], false),
            PathSpec::Fork(inner) => (judge(inner, graph, at_once, next, reports), true),
        };
        ends.push(own);
        *next += u32::from(!inner);
    }
    let compiled = graph
        .forks
        .iter()
        .find(|one| one.fork_node == fork_node)
        .expect("it is there");
    *next = compiled.join_node + 1;
    let mut machine = ForkJoinMachine::new(compiled, at_once);
    machine.step(Input::Start, &mut Vec::new()).expect("it starts");
    let mut found = Possible::default();
    try_all(&machine, &ends, &mut found);
    if !found.succeeds {
        reports.0.insert(compiled.join_node);
    }
    if let Some(first) = (0..fork.paths.len()).find(|path| !found.started.contains(path)) {
        reports.1.insert((fork_node, first));
    }
    let mut own = Vec::new();
    own.extend(found.succeeds.then_some(PathEnd::Completed));
    own.extend(found.fails.then_some(PathEnd::Failed));
    own
}

fn node_of(pointer: &str) -> u32 {
    let place = pointer.split('/').nth(3).expect("a node's place");
    place.parse().expect("a number")
}

fn check(fork: &ForkSpec, at_once: Option<u32>) -> Result<(), TestCaseError> {
    let (compiled, analysis) = analyse_json(&workflow(fork, at_once));
    let mut reports = Default::default();
    judge(fork, &compiled.graphs[0], at_once, &mut 1, &mut reports);
    let never: BTreeSet<u32> = pointers(&analysis, &NEVER)
        .iter()
        .map(|pointer| node_of(pointer))
        .collect();
    prop_assert_eq!(&never, &reports.0, "{:#?}", &analysis.warnings);
    let unstarted = pointers(&analysis, &[FaultCode::BranchNeverStarts]);
    let unstarted: BTreeSet<(u32, usize)> = unstarted
        .iter()
        .map(|pointer| {
            (
                node_of(pointer),
                pointer
                    .rsplit('/')
                    .next()
                    .and_then(|path| path.parse().ok())
                    .expect("a path"),
            )
        })
        .collect();
    prop_assert_eq!(unstarted, reports.1, "{:#?}", &analysis.warnings);
    Ok(())
}

proptest! {
    #[test]
    fn a_join_is_reported_as_failing_if_and_only_if_no_order_of_ends_succeeds(
        fork in fork_of(leaf(), true),
        at_once in prop::option::of(1..4_u32),
    ) {
        check(&fork, at_once)?;
    }
}

proptest! {
    #[test]
    fn nested_forks_are_analysed_by_the_possible_outcomes_of_inner_forks(
        fork in fork_of(prop_oneof![2 => leaf(), 1 => fork_of(leaf(), false).prop_map(PathSpec::Fork)], false),
        at_once in prop::option::of(1..4_u32),
    ) {
        check(&fork, at_once)?;
    }
}

#[test]
fn a_join_timeout_shorter_than_the_waits_is_reported() {
    let file = |timeout: f64| {
        json!({"id": "w", "nodes": [
            {"id": "s", "type": "START"},
            {"id": "f", "type": "FORK", "config": {"forkPathIds": ["a", "b"], "childNodeIds": ["one", "two"]}},
            {"id": "one", "type": "WAIT", "config": {"seconds": 2}},
            {"id": "more", "type": "WAIT", "config": {"seconds": 3}},
            {"id": "two", "type": "CODE", "config": {"code": "return 1"}},
            {"id": "j", "type": "JOIN", "config": {"forkPathIds": ["a", "b"], "joinStrategy": "ALL_COMPLETED", "timeout": timeout}},
            {"id": "e", "type": "END"}],
          "edges": [{"from": "s", "to": "f"}, {"from": "f", "to": "one"}, {"from": "f", "to": "two"},
            {"from": "one", "to": "more"}, {"from": "more", "to": "j"}, {"from": "two", "to": "j"}, {"from": "j", "to": "e"}]})
    };
    let (_, analysis) = analyse_json(&file(4.9));
    assert_eq!(pointers(&analysis, &NEVER), ["/nodes/5/config/timeout"]);
    let (_, analysis) = analyse_json(&file(5.0));
    assert_eq!(
        pointers(&analysis, &NEVER),
        [""; 0],
        "both at the same moment: either may be first"
    );
}

/// Compiles and analyses one file that must be valid.
fn analyse_json(file: &Value) -> (Compiled, Analysis) {
    let loaded = Loaded::of(&[SourceFile::new("test.json", file.to_string())]);
    let compiled = compile_loaded(&loaded, &CompileContext::default());
    assert!(compiled.faults.is_empty(), "{:#?}", compiled.faults);
    let analysis = analyse(&loaded, &compiled);
    (compiled, analysis)
}

/// Returns the pointers of the warnings with one of these codes, sorted.
fn pointers(analysis: &Analysis, codes: &[FaultCode]) -> Vec<String> {
    let wanted = analysis.warnings.iter().filter(|fault| codes.contains(&fault.code));
    let mut found: Vec<String> = wanted.map(|fault| fault.pointer.clone()).collect();
    found.sort();
    found
}

/// A workflow with only START and END.
fn trivial(id: &str) -> Value {
    json!({"id": id, "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
           "edges": [{"from": "s", "to": "e"}]})
}
