//! The tokens and the cost of a run, by node, thread, path and in total: each is the sum over the answered calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::{Engine, Model, ModelCall, ModelReply, RunError, TokenUsage};
use pirn_conversation::conversation::{Cost, Currency};
use pirn_conversation::model_call::{FailureKind, ModelFailure};
use pirn_tests::world::{Ran, code, line, node, run_in, workflow};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Thousandths for a million tokens: input, read, written, output, reasoning.
const PRICES: [u64; 5] = [3_000, 300, 3_750, 15_000, 12_345];

/// A call that was answered or has failed.
#[derive(Clone, Debug)]
struct Answered {
    workflow: String,
    node: String,
    thread: String,
    spent: TokenUsage,
}

/// A model that answers after a random delay with random token counts, and records them.
#[derive(Clone, Default)]
struct Meter {
    answered: Arc<Mutex<Vec<Answered>>>,
    chance: Arc<Mutex<u64>>,
}

impl Meter {
    fn next(&self) -> u64 {
        let mut chance = self.chance.lock().expect("no panic");
        *chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *chance >> 33
    }
}

impl Model for Meter {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let meter = self.clone();
        async move {
            // A range this large makes simultaneous answers practically impossible.
            call.clock.sleep(meter.next() % 1_000_000_000).await;
            let figure = || meter.next() % 1_000;
            let spent = TokenUsage {
                cached_read: figure(),
                cached_write: figure(),
                reasoning: figure(),
                ..TokenUsage::new(figure(), figure(), 0)
            };
            let spent = TokenUsage {
                total: spent.sent() + spent.received() + figure(),
                ..spent
            };
            meter.answered.lock().expect("no panic").push(Answered {
                workflow: call.context.workflow_id.to_string(),
                node: call.context.node_id.as_deref().unwrap_or_default().to_owned(),
                thread: call.context.thread_id.to_string(),
                spent,
            });
            if meter.next().is_multiple_of(10) {
                let mut failure = ModelFailure::new(FailureKind::Rejected);
                failure.spent = spent;
                return Err(failure.into_error("no"));
            }
            Ok(ModelReply {
                content: "yes".to_owned(),
                usage: spent,
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

/// A piece of a workflow.
#[derive(Clone, Debug)]
enum Piece {
    Ask,
    Compress,
    Fork { branches: Vec<Vec<Piece>>, any: bool },
    Call(Vec<Piece>),
    Map { items: usize, body: Vec<Piece> },
}

fn piece() -> impl Strategy<Value = Piece> {
    let leaf = prop_oneof![4 => Just(Piece::Ask), 1 => Just(Piece::Compress)];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let row = prop::collection::vec(inner, 1..3);
        prop_oneof![
            3 => (prop::collection::vec(row.clone(), 2..4), any::<bool>())
                .prop_map(|(branches, any)| Piece::Fork { branches, any }),
            1 => row.clone().prop_map(Piece::Call),
            1 => (1..4_usize, row).prop_map(|(items, body)| Piece::Map { items, body }),
        ]
    })
}

/// Generated workflows, and the fork paths that each node is in.
#[derive(Default)]
struct Written {
    workflows: Vec<Value>,
    paths_of: BTreeMap<String, Vec<String>>,
    count: usize,
}

impl Written {
    fn id(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}{}", self.count)
    }

    fn workflow(&mut self, body: &[Piece], inside: &[String]) -> String {
        let id = self.id("w");
        let (mut nodes, mut ways) = (Vec::new(), Vec::new());
        let place = self.workflows.len();
        self.workflows.push(Value::Null);
        let (start, end) = (format!("{id}-start"), format!("{id}-end"));
        nodes.extend([node(&start, "START", json!({})), node(&end, "END", json!({}))]);
        self.row(body, inside, (&start, &end), &mut nodes, &mut ways);
        let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
        self.workflows[place] = workflow(&id, &nodes, &ways);
        id
    }

    fn row(
        &mut self,
        pieces: &[Piece],
        inside: &[String],
        (from, to): (&str, &str),
        nodes: &mut Vec<Value>,
        ways: &mut Vec<String>,
    ) -> String {
        let mut last = from.to_owned();
        let mut first = None;
        for piece in pieces {
            let (entry, exit) = self.piece(piece, inside, nodes, ways);
            ways.push(format!("{last}>{entry}"));
            first.get_or_insert(entry);
            last = exit;
        }
        ways.push(format!("{last}>{to}"));
        first.unwrap_or_default()
    }

    fn piece(
        &mut self,
        piece: &Piece,
        inside: &[String],
        nodes: &mut Vec<Value>,
        ways: &mut Vec<String>,
    ) -> (String, String) {
        let one = |id: String, kind: &str, config: Value, nodes: &mut Vec<Value>| {
            nodes.push(node(&id, kind, config));
            (id.clone(), id)
        };
        match piece {
            Piece::Ask => {
                let id = self.id("ask");
                self.paths_of.insert(id.clone(), inside.to_vec());
                one(
                    id,
                    "LLM",
                    json!({"profileId": "meter", "prompt": "words ".repeat(40)}),
                    nodes,
                )
            }
            Piece::Compress => {
                let id = self.id("compress");
                self.paths_of.insert(id.clone(), inside.to_vec());
                let parameters = json!({"profileId": "meter", "keepRecent": 1});
                let config = json!({"operation": "compress", "strategy": "summarize", "parameters": parameters});
                one(id, "CONTEXT_PROCESSOR", config, nodes)
            }
            Piece::Call(body) => {
                let (id, called) = (self.id("call"), self.workflow(body, inside));
                one(id, "SUBGRAPH", json!({"subgraphId": called}), nodes)
            }
            Piece::Map { items, body } => {
                let (id, called) = (self.id("map"), self.workflow(body, inside));
                let list: Vec<usize> = (0..*items).collect();
                one(id, "MAP", json!({"items": list, "subgraphId": called}), nodes)
            }
            Piece::Fork { branches, any } => {
                let (fork, join) = (self.id("fork"), self.id("join"));
                let paths: Vec<String> = branches.iter().map(|_| self.id("path")).collect();
                let mut firsts = Vec::new();
                for (branch, path) in branches.iter().zip(&paths) {
                    let inside: Vec<String> = inside.iter().chain([path]).cloned().collect();
                    firsts.push(self.row(branch, &inside, (&fork, &join), nodes, ways));
                }
                nodes.push(node(
                    &fork,
                    "FORK",
                    json!({"forkPathIds": paths, "childNodeIds": firsts}),
                ));
                let strategy = if *any { "ANY_COMPLETED" } else { "ALL_COMPLETED" };
                nodes.push(node(
                    &join,
                    "JOIN",
                    json!({"forkPathIds": paths, "joinStrategy": strategy}),
                ));
                (fork, join)
            }
        }
    }
}

fn prices() -> Value {
    let [input, read, written, output, reasoning] = PRICES.map(|price| price as f64 / 1_000.0);
    json!({"input": input, "cachedRead": read, "cachedWrite": written, "output": output, "reasoning": reasoning, "currency": "EUR"})
}

/// The figures, added up independently of the engine: each kind, the total, the cost in units of 10^-12.
fn sum<'a>(spent: impl IntoIterator<Item = &'a TokenUsage>) -> [u64; 7] {
    spent.into_iter().fold([0; 7], |mut sum, one| {
        let kinds = [one.input, one.cached_read, one.cached_write, one.output, one.reasoning];
        let pico: u64 = kinds
            .iter()
            .zip(PRICES)
            .map(|(tokens, price)| tokens * price * 1_000)
            .sum();
        let figures = kinds.into_iter().chain([one.total, pico]);
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        sum
    })
}

fn figures(spent: &TokenUsage) -> [u64; 7] {
    let TokenUsage {
        input,
        cached_read,
        cached_write,
        output,
        reasoning,
        total,
        cost,
    } = *spent;
    assert!(cost.is_none_or(|cost| cost.currency.to_string() == "EUR"), "{spent:?}");
    [
        input,
        cached_read,
        cached_write,
        output,
        reasoning,
        total,
        cost.map_or(0, |cost| cost.pico),
    ]
}

fn ran(meter: &Meter, written: &Written) -> Ran {
    let bundle = json!({
        "workflows": written.workflows,
        "profiles": [{"id": "meter", "provider": "meter", "prices": prices()}],
    });
    let builder = Engine::builder()
        .virtual_time(Some(7))
        .model("meter", Arc::new(meter.clone()));
    run_in(builder, &bundle, Value::Null, Vec::new())
}

fn by<K: Ord>(answered: &[Answered], key: impl Fn(&Answered) -> Vec<K>) -> BTreeMap<K, [u64; 7]> {
    let mut groups: BTreeMap<K, Vec<&TokenUsage>> = BTreeMap::new();
    for one in answered {
        for key in key(one) {
            groups.entry(key).or_default().push(&one.spent);
        }
    }
    groups.into_iter().map(|(key, spent)| (key, sum(spent))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_usage_figure_is_the_sum_over_its_calls(pieces in prop::collection::vec(piece(), 1..4), chance: u64) {
        let mut written = Written::default();
        let main = written.workflow(&pieces, &[]);
        prop_assert_eq!(&main, "w1");
        let meter = Meter { chance: Arc::new(Mutex::new(chance)), ..Meter::default() };
        let report = ran(&meter, &written).report;
        let answered = meter.answered.lock().expect("no panic").clone();

        prop_assert_eq!(figures(&report.tokens.spent), sum(answered.iter().map(|one| &one.spent)));

        let nodes = report.usage.nodes.iter();
        let nodes = nodes.map(|row| ((row.workflow_id.to_string(), row.node_id.to_string()), figures(&row.usage)));
        prop_assert_eq!(nodes.collect::<BTreeMap<_, _>>(), by(&answered, |one| vec![(one.workflow.clone(), one.node.clone())]));

        let threads = report.threads.iter().filter(|row| !row.usage.is_nothing());
        let threads = threads.map(|row| (row.thread_id.to_string(), figures(&row.usage)));
        prop_assert_eq!(threads.collect::<BTreeMap<_, _>>(), by(&answered, |one| vec![one.thread.clone()]));

        let paths = report.usage.paths.iter().map(|row| (row.path_id.to_string(), figures(&row.usage)));
        prop_assert_eq!(paths.collect::<BTreeMap<_, _>>(), by(&answered, |one| written.paths_of[&one.node].clone()));

        let first = &report.threads[0];
        prop_assert_eq!(first.usage_with_started.unwrap_or(first.usage), report.tokens.spent);
    }
}

#[test]
fn tokens_of_a_triggered_workflow_count_for_the_thread_that_it_runs_for() {
    let ask = |id: &str| node(id, "LLM", json!({"profileId": "meter", "prompt": "hi"}));
    let sub = workflow(
        "sub",
        &[
            node("s", "START_FROM_TRIGGER", json!({})),
            ask("t"),
            node("c", "CONTINUE_FROM_TRIGGER", json!({})),
        ],
        &["s>t>c"],
    );
    let main = line("main", &[code("x", "return 1"), ask("a")]);
    let bundle = json!({
        "workflows": [main, sub],
        "profiles": [{"id": "meter", "provider": "meter"}],
        "triggers": [{"id": "t", "condition": {"eventType": "NODE_COMPLETED", "expression": "event.nodeId === 'x'"},
            "action": {"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters": {"triggeredWorkflowId": "sub", "timeout": 10_000_000}}}],
    });
    let meter = Meter {
        chance: Arc::new(Mutex::new(3)),
        ..Meter::default()
    };
    let builder = Engine::builder()
        .virtual_time(Some(7))
        .model("meter", Arc::new(meter.clone()));
    let report = run_in(builder, &bundle, Value::Null, Vec::new()).report;
    assert_eq!(meter.answered.lock().expect("no panic").len(), 2);
    assert_eq!(report.usage.nodes.len(), 2, "{:?}", report.usage);
    assert_eq!(report.tokens.spent.cost, None, "without prices nothing has a cost");
    assert_eq!(report.threads[0].usage_with_started, Some(report.tokens.spent));
    assert_ne!(report.threads[0].usage, report.tokens.spent);
}

#[test]
fn a_fallback_profiles_prices_apply_to_its_calls() {
    let profiles = json!([
        {"id": "first", "provider": "fails", "prices": {"input": 1, "output": 1}, "fallback": ["second"]},
        {"id": "second", "provider": "fine", "prices": {"input": 10, "output": 100}},
    ]);
    let main = line(
        "main",
        &[node("ask", "LLM", json!({"profileId": "first", "prompt": "hi"}))],
    );
    let builder = Engine::builder()
        .virtual_time(Some(7))
        .model("fails", Arc::new(Fixed { fails: true }))
        .model("fine", Arc::new(Fixed { fails: false }));
    let bundle = json!({"workflows": [main], "profiles": profiles});
    let report = run_in(builder, &bundle, Value::Null, Vec::new()).report;
    let cost = Cost {
        pico: 30_000_000 + 10 * 20_000_000 + 1_000_000_000,
        currency: Currency::default(),
    };
    assert_eq!(
        report.tokens.spent,
        TokenUsage {
            cost: Some(cost),
            ..TokenUsage::new(40, 20, 60)
        }
    );
    assert_eq!(
        report.output["usage"]["cost"],
        json!({"amount": 0.00123, "currency": "USD"})
    );
}

/// Reports 20 tokens in and 10 out.
struct Fixed {
    fails: bool,
}

impl Model for Fixed {
    fn call(&self, _: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let usage = TokenUsage::new(20, 10, 30);
        let mut failure = ModelFailure::new(FailureKind::Rejected);
        failure.spent = usage;
        std::future::ready(if self.fails {
            Err(failure.into_error("no"))
        } else {
            Ok(ModelReply {
                usage,
                ..ModelReply::default()
            })
        })
        .boxed()
    }
}
