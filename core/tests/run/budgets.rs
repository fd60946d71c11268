//! Budgets over random trees of forks: never overspent, no refusal while there is enough, no call waits for ever. A run that is
//! rebuilt at any point decides alike.

use std::collections::BTreeMap;

use pirn_conversation::conversation::{Cost, Currency, TokenUsage};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_core::run::{Message, Origin, ThreadNo, ToThread};
use pirn_core::thread::{EffectId, Input, ModelReply, Outcome};
use pirn_definition::definition::Budget;
use pirn_definition::graph::NodeKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::WRITER;
use super::harness::{Harness, ModelStep};
use super::rebuilt;

/// A piece of a workflow.
#[derive(Clone, Debug)]
enum Piece {
    Ask {
        most: u64,
        on_error: bool,
    },
    Summarize,
    Fork {
        branches: Vec<Vec<Piece>>,
        any: bool,
    },
    Call(Option<Value>, Vec<Piece>),
    Map {
        items: usize,
        budget: Option<Value>,
        body: Vec<Piece>,
    },
}

fn limits() -> impl Strategy<Value = Value> {
    let limit = |least: u64, most: u64| prop::option::of(least..most);
    (limit(60, 900), limit(1, 9), limit(60, 1_500)).prop_map(|(tokens, calls, cost)| {
        let mut limits = json!({});
        if let Some(tokens) = tokens {
            limits["tokens"] = json!(tokens);
        }
        if let Some(calls) = calls {
            limits["modelCalls"] = json!(calls);
        }
        if let Some(cost) = cost {
            limits["cost"] = json!(cost as f64 / 1e6);
        }
        limits
    })
}

fn budget() -> impl Strategy<Value = Value> {
    (limits(), prop::option::of(limits())).prop_map(|(mut whole, path)| {
        if let Some(path) = path {
            whole["perPath"] = path;
        }
        whole
    })
}

fn piece() -> impl Strategy<Value = Piece> {
    let leaf = prop_oneof![
        5 => (1..120_u64, any::<bool>()).prop_map(|(most, on_error)| Piece::Ask { most, on_error }),
        1 => Just(Piece::Summarize),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let row = prop::collection::vec(inner, 1..3);
        prop_oneof![
            4 => (prop::collection::vec(row.clone(), 2..5), any::<bool>())
                .prop_map(|(branches, any)| Piece::Fork { branches, any }),
            1 => (prop::option::of(budget()), row.clone()).prop_map(|(budget, body)| Piece::Call(budget, body)),
            1 => (1..4_usize, prop::option::of(budget()), row)
                .prop_map(|(items, budget, body)| Piece::Map { items, budget, body }),
        ]
    })
}

/// Nodes and edges of a workflow under construction.
#[derive(Default)]
struct Written {
    workflows: Vec<Value>,
    count: usize,
}

impl Written {
    fn id(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}{}", self.count)
    }

    fn workflow(&mut self, id: &str, budget: Option<&Value>, body: &[Piece]) {
        let (start, end) = (format!("{id}-start"), format!("{id}-end"));
        let mut nodes = vec![json!({"id": start, "type": "START"}), json!({"id": end, "type": "END"})];
        let mut edges = Vec::new();
        self.row(body, (&start, &end), &mut nodes, &mut edges);
        let mut config = json!({});
        if let Some(budget) = budget {
            config["budget"] = budget.clone();
        }
        self.workflows
            .push(json!({"id": id, "nodes": nodes, "edges": edges, "config": config}));
    }

    /// Adds the pieces in a row and returns the id of the first node.
    fn row(&mut self, pieces: &[Piece], ends: (&str, &str), nodes: &mut Vec<Value>, edges: &mut Vec<Value>) -> String {
        let mut last = ends.0.to_owned();
        let mut first = None;
        for piece in pieces {
            let (entry, exit) = self.piece(piece, nodes, edges);
            edges.push(json!({"from": last, "to": entry}));
            first.get_or_insert(entry);
            last = exit;
        }
        edges.push(json!({"from": last, "to": ends.1}));
        first.expect("a row has a piece")
    }

    fn piece(&mut self, piece: &Piece, nodes: &mut Vec<Value>, edges: &mut Vec<Value>) -> (String, String) {
        let one = |id: String, node: Value, nodes: &mut Vec<Value>| {
            nodes.push(node);
            (id.clone(), id)
        };
        match piece {
            Piece::Ask { most, on_error } => {
                let id = self.id("ask");
                let config = json!({"prompt": "text", "parameters": {"maxTokens": most}});
                let mut node = json!({"id": id, "type": "LLM", "config": config});
                if !on_error {
                    return one(id, node, nodes);
                }
                // The thread continues after success and failure.
                let after = self.id("after");
                node["onError"] = json!({"targetNodeId": after});
                nodes.push(node);
                nodes
                    .push(json!({"id": after, "type": "VARIABLE", "config": {"variableName": "v", "expression": "1"}}));
                edges.push(json!({"from": id, "to": after}));
                (id, after)
            }
            Piece::Summarize => {
                let id = self.id("summarize");
                let parameters = json!({"profileId": "writer", "keepRecent": 1});
                let config = json!({"operation": "compress", "strategy": "summarize", "parameters": parameters});
                one(
                    id.clone(),
                    json!({"id": id, "type": "CONTEXT_PROCESSOR", "config": config}),
                    nodes,
                )
            }
            Piece::Call(budget, body) => {
                let (id, called) = (self.id("call"), self.id("w"));
                self.workflow(&called, budget.as_ref(), body);
                one(
                    id.clone(),
                    json!({"id": id, "type": "SUBGRAPH", "config": {"subgraphId": called}}),
                    nodes,
                )
            }
            Piece::Map { items, budget, body } => {
                let (id, called) = (self.id("map"), self.id("w"));
                self.workflow(&called, budget.as_ref(), body);
                let config = json!({"items": vec![0; *items], "maxItems": items, "subgraphId": called});
                one(id.clone(), json!({"id": id, "type": "MAP", "config": config}), nodes)
            }
            Piece::Fork { branches, any } => {
                let (fork, join) = (self.id("fork"), self.id("join"));
                let paths: Vec<String> = branches.iter().map(|_| self.id("path")).collect();
                let firsts: Vec<String> = branches
                    .iter()
                    .map(|branch| self.row(branch, (&fork, &join), nodes, edges))
                    .collect();
                let config = json!({"forkPathIds": paths, "childNodeIds": firsts});
                nodes.push(json!({"id": fork, "type": "FORK", "config": config}));
                let strategy = if *any { "ANY_COMPLETED" } else { "ALL_COMPLETED" };
                let config = json!({"forkPathIds": paths, "joinStrategy": strategy});
                nodes.push(json!({"id": join, "type": "JOIN", "config": config}));
                (fork, join)
            }
        }
    }
}

/// Tokens, cost in 1e-12 units, number of calls.
type Figures = [u64; 3];

/// Thread, and true for the budget of the thread as a path.
type Account = (ThreadNo, bool);

type Limits = [Option<u64>; 3];

const KINDS: [&str; 3] = ["tokens", "cost", "modelCalls"];

/// Formats a figure as in events and errors.
fn shown(kind: usize, figure: u64) -> Value {
    if kind == 1 {
        json!(figure as f64 / 1e12)
    } else {
        json!(figure)
    }
}

/// Reference model: adds up the usage of calls as documented. No queue; open calls are the only reservations.
#[derive(Default)]
struct Oracle {
    used: BTreeMap<Account, Figures>,
    open: BTreeMap<(ThreadNo, EffectId), Figures>,
    /// Values of `used` since the last input. A refusal is observed at the end of the input, and may refer to an earlier value.
    lately: BTreeMap<Account, Vec<Figures>>,
    refused: usize,
    dropped: usize,
}

impl Oracle {
    /// Returns the accounts on which a thread's calls draw, with their limits.
    fn accounts(harness: &Harness, thread: ThreadNo) -> Vec<(Account, Limits)> {
        let of = |limits: &Budget| {
            let pico = limits.cost.map(|cost| (cost * 1e12).round() as u64);
            [limits.tokens, pico, limits.model_calls]
        };
        let mut accounts = Vec::new();
        let mut next = Some(thread);
        while let Some(thread) = next {
            let (origin, graph) = harness.machine.origin(thread).expect("it was started");
            let parent = harness.parents[thread as usize];
            let budget = graph.config.budget.as_deref();
            let of_parent = parent.and_then(|parent| harness.machine.origin(parent)?.1.config.budget.as_deref());
            let path = |budget: Option<&Budget>| budget.and_then(|budget| Some(of(budget.per_path.as_deref()?)));
            let whole = budget.map(of);
            let (path, whole) = match origin {
                Origin::Branch { .. } => (path(budget), None),
                Origin::Item { .. } => (path(of_parent), whole),
                Origin::Main | Origin::Called { .. } | Origin::Triggered { .. } => (None, whole),
            };
            accounts.extend(whole.map(|limits| ((thread, false), limits)));
            accounts.extend(path.map(|limits| ((thread, true), limits)));
            next = parent;
        }
        accounts
    }

    /// Returns the maximum usage of a call.
    fn most(harness: &Harness, thread: ThreadNo, node: u32, sent: u64) -> (u64, Figures) {
        let (_, graph) = harness.machine.origin(thread).expect("it was started");
        let received = match &graph.node(node).kind {
            NodeKind::Llm(llm) => llm.parameters.as_ref().expect("written")["maxTokens"]
                .as_u64()
                .expect("a number"),
            _ => WRITER,
        };
        (received, figures(sent, received))
    }

    fn uses(&mut self, harness: &Harness, thread: ThreadNo, used: Figures) {
        for (account, _) in Self::accounts(harness, thread) {
            let sums = self.used.entry(account).or_default();
            self.lately.entry(account).or_default().push(*sums);
            for (sum, used) in sums.iter_mut().zip(used) {
                *sum += used;
            }
        }
    }

    fn drop(&mut self, harness: &Harness, thread: ThreadNo, effect: EffectId) {
        if let Some(most) = self.open.remove(&(thread, effect)) {
            self.dropped += 1;
            self.uses(harness, thread, most);
        }
    }

    /// Processes the model calls that the run started, cancelled or refused.
    fn sees(&mut self, harness: &mut Harness, open: &mut Vec<Call>) {
        for step in std::mem::take(&mut harness.models) {
            match step {
                ModelStep::Begins(thread, effect, node, sent) => {
                    let (received, most) = Self::most(harness, thread, node, sent);
                    open.push(Call {
                        thread,
                        effect,
                        sent,
                        received,
                    });
                    self.uses(harness, thread, [0, 0, 1]);
                    self.open.insert((thread, effect), most);
                    self.check(harness, thread);
                }
                ModelStep::Dropped(thread, effect) => {
                    open.retain(|call| (call.thread, call.effect) != (thread, effect));
                    self.drop(harness, thread, effect);
                }
                ModelStep::Ended(thread) => {
                    let left = open.iter().any(|call| call.thread == thread);
                    assert!(!left, "a thread drops its calls before it ends");
                }
                ModelStep::Refused(thread, details) => {
                    self.refused += 1;
                    self.check_refused(harness, thread, &details);
                }
            }
        }
        self.lately.clear();
    }

    /// Asserts that no limit is exceeded, even if every open call uses its maximum.
    fn check(&self, harness: &Harness, thread: ThreadNo) {
        for (account, limits) in Self::accounts(harness, thread) {
            let mut sums = self.used.get(&account).copied().unwrap_or_default();
            for ((thread, _), most) in &self.open {
                if Self::accounts(harness, *thread)
                    .iter()
                    .any(|(other, _)| *other == account)
                {
                    for (sum, most) in sums.iter_mut().zip(most) {
                        *sum += most;
                    }
                }
            }
            for (kind, limit) in limits.into_iter().enumerate() {
                let sum = sums[kind];
                assert!(
                    limit.is_none_or(|limit| sum <= limit),
                    "{account:?}: {sum} {} of {limit:?}",
                    KINDS[kind]
                );
            }
        }
    }

    /// Asserts that a refused call would exceed the limit, even if open calls released their reservations.
    fn check_refused(&self, harness: &Harness, thread: ThreadNo, details: &Value) {
        let kind = KINDS.iter().position(|kind| details["kind"] == *kind).expect("a kind");
        let number = |name: &str| details[name].as_f64().expect("a number");
        assert!(number("used") + number("needs") > number("limit"), "{details}");
        let accounts = Self::accounts(harness, thread);
        let is_told = accounts.iter().any(|(account, limits)| {
            let now = self.used.get(account).copied().unwrap_or_default();
            let mut lately = self.lately.get(account).into_iter().flatten().chain([&now]);
            limits[kind].is_some_and(|limit| details["limit"] == shown(kind, limit))
                && lately.any(|used| details["used"] == shown(kind, used[kind]))
        });
        assert!(is_told, "{details}: {accounts:?} {:?}", self.used);
    }
}

fn figures(sent: u64, received: u64) -> Figures {
    [sent + received, sent * 1_000_000 + received * 2_000_000, 0]
}

#[derive(Clone, Copy, Debug)]
struct Call {
    thread: ThreadNo,
    effect: EffectId,
    sent: u64,
    received: u64,
}

/// Deterministic random number generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

fn bundle(budget: &Value, body: &[Piece]) -> Value {
    let mut written = Written::default();
    written.workflow("main", Some(budget), body);
    json!({"workflows": written.workflows})
}

/// Runs a workflow to its end. Calls end in random order with random usage.
fn run_to_end(bundle: &Value, seed: u64) -> (Harness, Oracle) {
    let mut chance = Chance(seed);
    let (mut harness, mut oracle, mut open) = (Harness::of(bundle), Oracle::default(), Vec::new());
    oracle.sees(&mut harness, &mut open);
    while !open.is_empty() {
        if chance.below(25) == 0 {
            let thread = chance.below(harness.machine.len()) as ThreadNo;
            harness.cancel_thread(thread);
            oracle.sees(&mut harness, &mut open);
            continue;
        }
        let call = open.swap_remove(chance.below(open.len()));
        let (sent, received) = (
            chance.below(call.sent as usize + 1) as u64,
            chance.below(call.received as usize + 1) as u64,
        );
        let [tokens, pico, _] = figures(sent, received);
        let usage = TokenUsage {
            cost: Some(Cost {
                pico,
                currency: Currency::default(),
            }),
            ..TokenUsage::new(sent, received, tokens)
        };
        let most = oracle.open.remove(&(call.thread, call.effect)).expect("it is open");
        let failed = |kind, spent| {
            let failure = ModelFailure {
                spent,
                ..ModelFailure::new(kind)
            };
            Outcome::Failed(failure.into_error("no"))
        };
        let (outcome, used) = match chance.below(12) {
            0 => (failed(FailureKind::RateLimited, TokenUsage::default()), [0; 3]),
            1 => (failed(FailureKind::Dropped, TokenUsage::default()), most),
            2 if tokens > 0 => (failed(FailureKind::Dropped, usage), [tokens, pico, 0]),
            _ => {
                let reply = ModelReply {
                    content: "ok".to_owned(),
                    usage,
                    ..ModelReply::default()
                };
                (Outcome::Reply(Box::new(reply)), [tokens, pico, 0])
            }
        };
        oracle.uses(&harness, call.thread, used);
        harness.answer(call.thread, call.effect, outcome);
        oracle.sees(&mut harness, &mut open);
    }
    assert!(harness.is_settled, "nothing waits that nobody will answer");
    (harness, oracle)
}

/// Runs the workflow. For some seeds, also rebuilds the run from a prefix of its inputs: the effects must be a prefix too.
fn check(budget: &Value, body: &[Piece], seed: u64) {
    let bundle = bundle(budget, body);
    let (played, _) = run_to_end(&bundle, seed);
    if seed.is_multiple_of(4) {
        let inputs = Chance(seed ^ 1).below(played.inputs.len() + 1);
        let again = Harness::rebuilt(&bundle, &played.inputs[..inputs], seed.is_multiple_of(16));
        assert!(played.effect_log.starts_with(&again.effect_log));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]
    #[test]
    fn a_budget_is_never_exceeded_and_no_affordable_call_is_refused(
        budget in limits(), body in prop::collection::vec(piece(), 1..4), seed: u64,
    ) {
        check(&budget, &body, seed);
    }

    #[test]
    fn path_budgets_are_never_exceeded_and_no_affordable_call_is_refused(
        budget in limits(), path in limits(), body in prop::collection::vec(piece(), 1..4), seed: u64,
    ) {
        let mut budget = budget;
        budget["perPath"] = path;
        check(&budget, &body, seed);
    }
}

#[test]
fn random_trees_contain_waiting_refused_and_stopped_calls() {
    let body = vec![Piece::Fork {
        branches: vec![
            vec![
                Piece::Ask {
                    most: 100,
                    on_error: true
                };
                3
            ];
            4
        ],
        any: true,
    }];
    let (mut refused, mut dropped, mut waited) = (0, 0, 0);
    for seed in 0..40_u64 {
        let bundle = bundle(&json!({"tokens": 400, "perPath": {"modelCalls": 2}}), &body);
        let (played, oracle) = run_to_end(&bundle, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rebuilt::check(&bundle, &played);
        refused += oracle.refused;
        dropped += oracle.dropped;
        // Four branches call a model at once. The budget admits three.
        let first = Harness::of(&bundle);
        waited += 4 - first
            .models
            .iter()
            .filter(|step| matches!(step, ModelStep::Begins(..)))
            .count();
    }
    assert!(refused > 0 && dropped > 0 && waited > 0, "{refused} {dropped} {waited}");
}

/// Two branches call a model at once. The budget admits one.
fn two_at_once() -> Harness {
    let body = vec![Piece::Fork {
        branches: vec![
            vec![Piece::Ask {
                most: 100,
                on_error: false
            }];
            2
        ],
        any: false,
    }];
    Harness::of(&bundle(&json!({"tokens": 150}), &body))
}

fn begun(harness: &Harness) -> Vec<(ThreadNo, EffectId, u64)> {
    let begins = harness.models.iter().filter_map(|step| match step {
        ModelStep::Begins(thread, effect, _, sent) => Some((*thread, *effect, *sent)),
        ModelStep::Dropped(..) | ModelStep::Ended(_) | ModelStep::Refused(..) => None,
    });
    begins.collect()
}

fn replies(harness: &mut Harness, (thread, effect, _): (ThreadNo, EffectId, u64), tokens: u64) {
    let reply = ModelReply {
        content: "ok".to_owned(),
        usage: TokenUsage::new(0, tokens, tokens),
        ..ModelReply::default()
    };
    harness.answer(thread, effect, Outcome::Reply(Box::new(reply)));
}

#[test]
fn a_waiting_call_starts_when_another_releases_its_reservation() {
    let mut harness = two_at_once();
    let [first] = begun(&harness)[..] else {
        panic!("one begins")
    };
    replies(&mut harness, first, 10);
    let [_, second] = begun(&harness)[..] else {
        panic!("the other one begins")
    };
    replies(&mut harness, second, 10);
    let report = harness.report.expect("it has ended");
    assert_eq!(report.status.as_str(), "COMPLETED");
    let budget = serde_json::to_value(&report.budget).expect("JSON");
    assert_eq!(budget, json!({"tokens": {"limit": 150, "used": 20}}));
}

#[test]
fn a_waiting_call_is_refused_when_its_reservation_cannot_be_met() {
    let mut harness = two_at_once();
    let [first] = begun(&harness)[..] else {
        panic!("one begins")
    };
    replies(&mut harness, first, 100);
    assert_eq!(begun(&harness).len(), 1);
    assert!(
        harness.models.iter().any(|step| matches!(step, ModelStep::Refused(..))),
        "{:?}",
        harness.models
    );
    let report = serde_json::to_string(&harness.report).expect("JSON");
    assert!(report.contains("TOKEN_BUDGET_EXCEEDED"), "{report}");
}

#[test]
fn a_waiting_call_is_stopped_with_its_thread_and_never_sent() {
    let mut harness = two_at_once();
    let [(first, ..)] = begun(&harness)[..] else {
        panic!("one begins")
    };
    let waits = if first == 1 { 2 } else { 1 };
    harness.cancel_thread(waits);
    let is_dropped = |step: &ModelStep| matches!(step, ModelStep::Dropped(thread, _) if *thread == waits);
    assert!(!harness.models.iter().any(is_dropped), "{:?}", harness.models);
    assert!(harness.is_settled, "its join can not succeed any more");
}

#[test]
fn usage_above_the_reservation_counts_and_is_reported() {
    let mut harness = two_at_once();
    let [first] = begun(&harness)[..] else {
        panic!("one begins")
    };
    replies(&mut harness, first, 149);
    assert!(harness.effect_log.contains("BudgetOverrun"), "{}", harness.effect_log);
    let report = harness.report.as_ref().expect("the other one is refused");
    let budget = serde_json::to_value(&report.budget).expect("JSON");
    assert_eq!(budget["tokens"]["used"], 149);
}

#[test]
fn a_budget_warning_is_raised_once_and_included_in_every_later_request() {
    let body = vec![
        Piece::Ask {
            most: 100,
            on_error: false
        };
        3
    ];
    let mut harness = Harness::of(&bundle(&json!({"tokens": 1_000, "warnAt": 0.05}), &body));
    for _ in 0..3 {
        let last = *begun(&harness).last().expect("it asks");
        replies(&mut harness, last, 50);
    }
    assert_eq!(
        harness.effect_log.matches("event_type: BudgetWarning").count(),
        1,
        "{}",
        harness.effect_log
    );
    let requests: Vec<&str> = harness
        .effect_log
        .lines()
        .filter(|line| line.contains("effect: Model"))
        .collect();
    let has_warning = requests
        .iter()
        .map(|request| request.contains("## Budget"))
        .collect::<Vec<_>>();
    assert_eq!(has_warning, [false, true, true]);
    assert!(requests[2].contains("- Tokens: 100 of 1000 used"), "{}", requests[2]);
}

#[test]
fn a_call_with_unknown_maximum_usage_is_refused_under_a_token_budget() {
    let workflow = |budget: Value| {
        json!({"workflows": [{"id": "main", "config": {"budget": budget}, "nodes": [
            {"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": "p"}}, {"id": "e", "type": "END"},
        ], "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}]})
    };
    let refused = Harness::of(&workflow(json!({"tokens": 1_000_000})));
    let error = refused.report.expect("it has failed").error.expect("why");
    assert!(error.message.contains("maxTokens"), "{error}");
    let counted = Harness::of(&workflow(json!({"modelCalls": 1})));
    assert_eq!(begun(&counted).len(), 1);
}

#[test]
fn a_late_answer_counts_once() {
    let mut harness = two_at_once();
    let [first] = begun(&harness)[..] else {
        panic!("one begins")
    };
    for _ in 0..2 {
        replies(&mut harness, first, 10);
    }
    let (thread, effect, _) = first;
    let late = Input::Answer {
        effect,
        outcome: Outcome::Failed(ModelFailure::new(FailureKind::Dropped).into_error("late")),
    };
    harness.send(Message::Thread(thread, ToThread::Input(late)));
    let second = *begun(&harness).last().expect("it begins");
    replies(&mut harness, second, 10);
    let report = harness.report.expect("it has ended");
    let budget = serde_json::to_value(&report.budget).expect("JSON");
    assert_eq!(budget["tokens"]["used"], 20);
}
