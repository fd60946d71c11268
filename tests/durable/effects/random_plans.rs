//! Random plans of models: scripts, graphs, code and called workflows within each other, under limits, and ended or killed at random moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use pirn::store::{MemoryStore, Store};
use pirn::{
    Engine, EngineBuilder, Event, EventType, Model, ModelCall, ModelReply, Role, RunError, RunReport, ThreadStatus,
    TokenUsage, ToolCall, idempotency_key,
};
use pirn_tests::world::{line, node, run_in};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::durable::faults::external_effects::RUN;
use crate::durable::faults::failing_store::{Crash, Failing};

/// Calls that a model makes in one reply.
type Plan = Vec<Call>;

#[derive(Clone, Debug)]
enum Call {
    Look,
    /// A workflow with a model that executes a plan.
    Helper(Plan),
    /// `run_code` with these calls.
    Code(Join, Vec<Call>),
    /// `run_workflow` with a script of agents and called workflows.
    Script(Join, Vec<Plan>),
    /// `run_workflow` with a graph of one LLM node.
    Graph(Plan),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Join {
    Parallel,
    Any,
    Race,
    Threshold,
}

impl Join {
    fn code(self, functions: &[String]) -> String {
        let list = functions.join(", ");
        let joined = match self {
            Self::Parallel => format!("parallel([{list}])"),
            Self::Any => format!("any([{list}])"),
            Self::Race => format!("race(25, [{list}])"),
            Self::Threshold => format!("threshold(1, [{list}])"),
        };
        format!("try {{ return await {joined} }} catch (error) {{ return `${{error.code}}: ${{error.message}}` }}")
    }
}

fn text(plan: &[Call]) -> String {
    let calls: Vec<Value> = plan.iter().map(Call::to_json).collect();
    json!(calls).to_string()
}

fn literal(plan: &[Call]) -> String {
    json!(text(plan)).to_string()
}

impl Call {
    fn to_json(&self) -> Value {
        let (name, arguments) = match self {
            Self::Look => ("look", json!({})),
            Self::Helper(plan) => ("helper", json!({"plan": text(plan)})),
            Self::Code(join, calls) => {
                let functions = calls.iter().map(|call| match call {
                    Self::Helper(plan) => format!("() => tools.helper({{ plan: {} }})", literal(plan)),
                    _other => "() => tools.look({})".to_owned(),
                });
                ("run_code", json!({"code": join.code(&functions.collect::<Vec<_>>())}))
            }
            Self::Script(join, plans) => {
                let functions = plans.iter().enumerate().map(|(at, plan)| {
                    let plan = literal(plan);
                    if at % 3 == 2 {
                        format!("() => workflow('helper', {{ plan: {plan} }})")
                    } else {
                        format!("() => agent({plan}, {{ tools: ['look', 'workflow:helper'] }})")
                    }
                });
                (
                    "run_workflow",
                    json!({"script": join.code(&functions.collect::<Vec<_>>())}),
                )
            }
            Self::Graph(plan) => {
                let tools = json!(["look", "run_code", "workflow:helper"]);
                let llm = json!({"prompt": "{{input.plan}}", "tools": tools});
                let graph = line("graph", &[node("n", "LLM", llm)]);
                ("run_workflow", json!({"graph": graph, "input": {"plan": text(plan)}}))
            }
        };
        json!({"name": name, "arguments": arguments})
    }

    /// Returns true if the outcome does not depend on the order of the results.
    fn has_no_race(&self) -> bool {
        match self {
            Self::Look => true,
            Self::Helper(plan) | Self::Graph(plan) => plan.iter().all(Self::has_no_race),
            Self::Code(join, calls) => *join == Join::Parallel && calls.iter().all(Self::has_no_race),
            Self::Script(join, plans) => *join == Join::Parallel && plans.iter().flatten().all(Self::has_no_race),
        }
    }
}

fn calls() -> impl Strategy<Value = Call> {
    Just(Call::Look).prop_recursive(5, 20, 4, |inner| {
        let join = prop_oneof![
            3 => Just(Join::Parallel),
            1 => Just(Join::Any),
            1 => Just(Join::Race),
            1 => Just(Join::Threshold),
        ];
        let plan = prop::collection::vec(inner.clone(), 0..3);
        let plans = prop::collection::vec(plan.clone(), 1..4);
        prop_oneof![
            2 => plan.clone().prop_map(Call::Helper),
            2 => (join.clone(), prop::collection::vec(inner, 1..4)).prop_map(|(join, calls)| Call::Code(join, calls)),
            3 => (join, plans).prop_map(|(join, plans)| Call::Script(join, plans)),
            2 => plan.prop_map(Call::Graph),
        ]
    })
}

/// A limit on agents that no plan reaches.
const PLENTY: u64 = 1_000;

#[derive(Clone, Debug)]
struct Case {
    plan: Plan,
    limits: Value,
    /// Time limit of the run in milliseconds.
    ends: Option<u64>,
}

fn cases() -> impl Strategy<Value = Case> {
    let plan = prop::collection::vec(calls(), 1..4);
    let agents = prop_oneof![2 => 1..12_u64, 1 => Just(PLENTY)];
    let limits = (agents, 1..4_u32, 1..4_u32);
    let limits = limits
        .prop_map(|(agents, depth, concurrency)| json!({"agents": agents, "depth": depth, "concurrency": concurrency}));
    (plan, limits, prop::option::of(1..120_u64)).prop_map(|(plan, limits, ends)| Case { plan, limits, ends })
}

/// Effects of a run's processes, by their idempotency key.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<BTreeMap<String, u32>>>);

impl Outside {
    /// Counts the current effect. Returns its duration in milliseconds, which depends on its key only.
    fn perform(&self, kind: &str) -> u64 {
        let key = idempotency_key().expect("an effect has a key");
        let sum = key
            .bytes()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        *self
            .0
            .lock()
            .expect("no panic")
            .entry(format!("{kind} {key}"))
            .or_default() += 1;
        1 + sum % 20
    }

    fn model_calls(&self) -> u64 {
        let performed = self.0.lock().expect("no panic");
        performed.keys().filter(|key| key.starts_with("model")).count() as u64
    }
}

/// Makes the calls of the plan in its prompt, and replies `done` to their results.
struct Planner(Outside);

impl Model for Planner {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let millis = self.0.perform("model");
        let messages = &call.request.messages;
        let has_results = messages.last().is_some_and(|last| last.role == Role::Tool);
        let prompt = messages.iter().rfind(|message| message.role == Role::User);
        let prompt = prompt.map_or("[]", |message| message.content.as_str());
        let plan: Vec<Value> = serde_json::from_str(prompt).expect("the prompt is a plan");
        let calls = plan.into_iter().enumerate().map(|(at, call)| ToolCall {
            id: format!("c{at}"),
            name: call["name"].as_str().expect("a name").to_owned(),
            arguments: call["arguments"].clone(),
        });
        let tool_calls = if has_results { Vec::new() } else { calls.collect() };
        async move {
            call.clock.sleep(millis).await;
            Ok(ModelReply {
                content: "done".to_owned(),
                tool_calls,
                usage: TokenUsage::new(10, 5, 15),
                ..ModelReply::default()
            })
        }
        .boxed()
    }
}

struct Look(Outside);

impl pirn::Tool for Look {
    fn spec(&self) -> pirn::ToolSpec {
        pirn::ToolSpec {
            name: "look".to_owned(),
            description: "Looks".to_owned(),
            parameters: json!({"type": "object"}),
        }
    }
    fn call(&self, _: Value, clock: pirn_actors::host::WorkClock) -> BoxFuture<'static, Result<String, String>> {
        let millis = self.0.perform("look");
        async move {
            clock.sleep(millis).await;
            Ok("looked".to_owned())
        }
        .boxed()
    }
}

impl Case {
    fn bundle(&self) -> Value {
        let llm = json!({
            "profileId": "planner", "prompt": "{{input.plan}}", "tools": ["look", "run_code", "run_workflow", "workflow:helper"],
            "dynamic": {"consent": "auto", "tools": ["look", "run_code", "workflow:helper"], "limits": self.limits},
        });
        let mut main = line("main", &[node("ask", "LLM", llm.clone())]);
        main["config"] = json!({"maxDepth": 6});
        if let Some(ends) = self.ends {
            main["config"]["timeoutMs"] = json!(ends);
        }
        json!({"workflows": [main, line("helper", &[node("ask", "LLM", llm)])]})
    }

    fn input(&self) -> Value {
        json!({"plan": text(&self.plan)})
    }

    /// Returns true if the outcome does not depend on the order of results. Agents that start at once compete for a low limit.
    fn has_no_race(&self) -> bool {
        self.ends.is_none() && self.limits["agents"] == PLENTY && self.plan.iter().all(Call::has_no_race)
    }
}

fn engine(outside: &Outside) -> EngineBuilder {
    Engine::builder()
        .virtual_time(Some(7))
        .model("planner", Arc::new(Planner(outside.clone())))
        .tool(Arc::new(Look(outside.clone())))
}

/// The threads of a run, by their events.
#[derive(Default)]
struct Threads {
    /// Parents of called threads.
    parents: BTreeMap<String, String>,
    /// Limits of submitted workflows, by their first threads.
    limits: BTreeMap<String, u64>,
    /// Threads of scripts of `run_code`.
    codes: BTreeSet<String>,
    /// Executions of LLM nodes.
    executions: BTreeMap<String, u64>,
    ended: BTreeSet<String>,
    refused: u64,
}

impl Threads {
    fn of(events: &[Arc<Event>]) -> Self {
        let mut threads = Self::default();
        for event in events {
            let thread = event.thread_id.to_string();
            let fields = event.to_json();
            match event.raised.event_type {
                EventType::SubgraphStarted => {
                    let child = fields["childThreadId"].as_str().expect("an id").to_owned();
                    if let Some(limit) = fields["definition"]["config"]["maxAgents"].as_u64() {
                        threads.limits.insert(child.clone(), limit);
                    }
                    if fields["definition"]["nodes"][1]["config"]["toolResultBytes"].is_u64() {
                        threads.codes.insert(child.clone());
                    }
                    threads.parents.insert(child, thread);
                }
                EventType::ThreadCompleted | EventType::ThreadFailed | EventType::ThreadCancelled => {
                    threads.ended.insert(thread);
                }
                EventType::NodeStarted | EventType::ToolCallStarted | EventType::RequestPrepared => {
                    for above in threads.above(&thread) {
                        assert!(!threads.ended.contains(&above), "{thread} outlives {above}: {fields}");
                    }
                    if fields["nodeType"] == "LLM" {
                        *threads.executions.entry(thread).or_default() += 1;
                    }
                }
                EventType::NodeFailed if fields.to_string().contains("`dynamic.limits.agents`") => {
                    threads.refused += 1;
                    if let Some(executions) = threads.executions.get_mut(&thread) {
                        *executions -= 1;
                    }
                }
                _other => {}
            }
        }
        threads
    }

    /// The threads that contain one, from the innermost one.
    fn above(&self, thread: &str) -> Vec<String> {
        let mut above = Vec::new();
        let mut next = self.parents.get(thread);
        while let Some(thread) = next {
            above.push(thread.clone());
            next = self.parents.get(thread);
        }
        above
    }

    /// Checks the number of agents of each submitted workflow. Returns the number of those that used up their limit.
    fn check_limits(&self) -> u64 {
        let mut full = 0;
        for (submitted, limit) in &self.limits {
            let contained = self
                .parents
                .keys()
                .filter(|thread| self.above(thread).contains(submitted));
            let mut agents = self.executions.get(submitted).copied().unwrap_or_default();
            for thread in contained {
                let executions = self.executions.get(thread).copied().unwrap_or_default();
                let is_called = !self.limits.contains_key(thread) && !self.codes.contains(thread);
                agents += executions.max(u64::from(is_called));
            }
            assert!(agents <= *limit, "{submitted} has {agents} agents of {limit}");
            full += u64::from(agents == *limit);
        }
        full
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn random_plans_of_models_stay_within_their_limits_and_end_together(case in cases()) {
        let outside = Outside::default();
        let ran = run_in(engine(&outside), &case.bundle(), case.input(), Vec::new());
        let threads = Threads::of(&ran.events);
        threads.check_limits();
        let spent = ran.report.tokens.spent.total;
        let made = 15 * outside.model_calls();
        prop_assert!(spent <= made, "{} of {}", spent, made);
        if case.has_no_race() {
            prop_assert_eq!(ran.report.status, ThreadStatus::Completed);
            prop_assert_eq!(spent, made, "each call counts once");
        }
        for message in ran.report.conversation.messages.iter().filter(|message| message.role == Role::Tool) {
            let text = message.content.as_str();
            prop_assert!(!text.is_empty() && !text.contains("panic") && !text.contains("INTERNAL"), "{}", text);
        }
    }
}

/// Executes the run, or resumes it, until it ends or its store fails. Returns its report if it has ended.
fn play(case: &Case, outside: &Outside, store: &(impl Store + Clone)) -> Option<RunReport> {
    let builder = engine(outside)
        .store(store.clone())
        .workflows(case.bundle().to_string());
    let engine = builder.build().expect("builds");
    let there = block_on(store.run(RUN)).expect("is read");
    let run = match there {
        None => engine
            .run("main")
            .run_id(RUN)
            .input(case.input())
            .start()
            .expect("starts"),
        Some(there) if there.status.is_final() => {
            return Some(block_on(engine.view(RUN, None)).expect("is read").report);
        }
        Some(_) => block_on(engine.resume(RUN).start()).expect("resumes"),
    };
    let report = run.outcome_blocking();
    run.wait_all_ended_blocking();
    engine.shutdown_blocking(Duration::from_secs(5));
    let has_failed = report
        .error
        .as_ref()
        .is_some_and(|error| error.code.as_str() == "STORE_ERROR");
    (!has_failed).then(|| (*report).clone())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn random_plans_of_models_that_are_killed_and_resumed_count_each_call_once(
        case in cases(), kills in prop::collection::vec(any::<(prop::sample::Index, bool)>(), 1..4)
    ) {
        let alone = Outside::default();
        let whole = Failing::new(MemoryStore::new(), Crash::Never);
        let expected = play(&case, &alone, &whole).expect("ends");
        let (outside, kept) = (Outside::default(), MemoryStore::new());
        let mut report = None;
        for (at, before) in kills {
            let at = at.index(whole.commits() as usize) as u64;
            let crash = if before { Crash::Before(at) } else { Crash::After(at) };
            report = play(&case, &outside, &Failing::new(kept.clone(), crash));
        }
        let report = match report {
            Some(report) => report,
            None => play(&case, &outside, &kept).expect("ends"),
        };
        let spent = report.tokens.spent.total;
        prop_assert!(spent <= 15 * outside.model_calls(), "{} tokens", spent);
        if case.has_no_race() {
            prop_assert_eq!(&report.output, &expected.output);
            prop_assert_eq!(json!(report.threads), json!(expected.threads));
            prop_assert_eq!(json!(report.conversation), json!(expected.conversation));
            prop_assert_eq!(spent, expected.tokens.spent.total, "each call counts once");
        }
        prop_assert!(report.threads.iter().all(|thread| thread.status.is_final()));
    }
}
