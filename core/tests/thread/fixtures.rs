//! Environment of a thread: answers its effects, and asserts what it must never do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_conversation::conversation::{ModelRequest, Repairs, TokenUsage};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{
    ConsentRequest, ConversationOp, Effect, EffectId, Environment, Evaluation, FiringId, Joined, ModelReply,
    NodeStatus, Outcome, Output, Outputs, PersonsAnswer, RequestWithEvents, SummaryRequest, ThreadKind, ThreadMachine,
    ThreadSeed, TimerPurpose, ToolResult, Variables, When,
};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::NodeKind;
use pirn_definition::message::ToolCall;
use pirn_events::event::{EventMask, RaisedEvent};
use serde_json::{Value, json};

use super::graph::graph;
use super::kind::Dice;

/// Kind of answer that an effect needs.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Choice(usize),
    Step,
    Value,
    Items,
    Answered,
    Texts,
    Done,
    Compressed,
    Summarized,
    Prepared,
    Reply { with_tools: bool },
    Tool { is_consented: bool },
    Joined,
    Child,
    Elapsed,
    Limit,
    Event,
    Held,
}

/// A thread with the state of its environment.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) machine: ThreadMachine,
    pub(crate) environment: Environment,
    pub(crate) open: BTreeMap<EffectId, Wanted>,
    /// Appends that the thread abandoned. They may still be answered: the message is added anyway.
    pub(crate) appends: BTreeSet<EffectId>,
    pub(crate) last_id: EffectId,
    pub(crate) over: BTreeSet<EffectId>,
    pub(crate) next_firing: FiringId,
    pub(crate) held: Vec<FiringId>,
    /// Delivered firings, and how often each was reported as applied.
    pub(crate) firings: BTreeMap<FiringId, u32>,
    pub(crate) ended: bool,
    /// Number of compressions requested, and of those that the conversation applied or the thread reported as failed.
    compressions: (u32, u32),
}

impl World {
    /// Creates a thread that has not started, in an environment drawn from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let everyone = dice.below(4) > 0;
        let mask = |is_all: bool| if is_all { EventMask::ALL } else { EventMask::NONE };
        let holding = dice.below(2) > 0;
        Self {
            machine: ThreadMachine::new(graph(), seed_of(&mut dice)),
            environment: Environment {
                random: seed,
                interest: mask(everyone),
                holding: mask(holding && everyone),
                has_globals: dice.below(2) > 0,
                user_messages: [None, Some(When::BeforeNextRequest), Some(When::WhenIdle)][dice.below(3)],
                agents_left: None,
                concurrency: None,
            },
            dice,
            open: BTreeMap::new(),
            appends: BTreeSet::new(),
            last_id: 0,
            over: BTreeSet::new(),
            next_firing: 1,
            held: Vec::new(),
            firings: BTreeMap::new(),
            ended: false,
            compressions: (0, 0),
        }
    }

    pub(crate) fn firing(&mut self) -> FiringId {
        self.next_firing += 1;
        self.next_firing
    }

    pub(crate) fn outcome(&mut self, wanted: &Wanted) -> Outcome {
        match wanted {
            Wanted::Choice(count) => {
                let drawn = self.dice.below(count + 1);
                Outcome::Choice((drawn < *count).then_some(drawn as u32))
            }
            Wanted::Value => Outcome::Value(Arc::new(json!(self.dice.below(3)))),
            Wanted::Items => Outcome::Value(Arc::new(json!([1, 2]))),
            Wanted::Texts => Outcome::Texts(vec![Some("text".to_owned()), None]),
            Wanted::Done => Outcome::Done,
            Wanted::Compressed if self.dice.below(2) == 0 => Outcome::Summarize(Box::new(SummaryRequest {
                request: model_request(),
                goes_on: None,
                profile_id: None,
            })),
            // The conversation raises COMPRESSION_COMPLETED, so that it is counted here.
            Wanted::Compressed | Wanted::Summarized => {
                self.compressions.1 += 1;
                Outcome::Done
            }
            Wanted::Prepared => {
                let crosses = self.dice.below(3) == 0;
                let event = RaisedEvent::new(EventType::TokenLimitExceeded, []);
                Outcome::Prepared(RequestWithEvents {
                    request: Arc::new(model_request().into()),
                    events: crosses.then_some(event).into_iter().collect(),
                    offered: None,
                })
            }
            Wanted::Reply { with_tools } => {
                let calls = if *with_tools { self.dice.below(3) } else { 0 };
                let call = |number: usize| ToolCall {
                    id: format!("c{number}"),
                    name: "t".to_owned(),
                    arguments: Value::Null,
                };
                Outcome::Reply(Box::new(ModelReply {
                    content: "reply".to_owned(),
                    tool_calls: (0..calls).map(call).collect(),
                    usage: TokenUsage::default(),
                    ..ModelReply::default()
                }))
            }
            Wanted::Step => Outcome::Value(Arc::new(self.script_step())),
            Wanted::Tool { is_consented: false } if self.dice.below(4) == 0 => {
                Outcome::NeedsConsent(Box::new(ConsentRequest {
                    reason: "a word".to_owned(),
                    arguments: json!({}),
                    schema: json!(true),
                    timeout_ms: (self.dice.below(2) == 0).then_some(5),
                }))
            }
            Wanted::Tool { .. } => Outcome::Tool(Box::new(ToolResult {
                content: "result".to_owned(),
                failed: self.dice.below(2) == 0,
                ..ToolResult::default()
            })),
            Wanted::Joined => Outcome::Joined(Box::new(Joined {
                output: Output::default(),
                variables: vec![("v".into(), Arc::new(json!(1)))],
                raises_events: true,
                folds: Vec::new(),
            })),
            Wanted::Child => Outcome::Child {
                output: Arc::new(json!({"x": 1})),
            },
            Wanted::Elapsed | Wanted::Limit => Outcome::Elapsed,
            Wanted::Answered => Outcome::Answered(PersonsAnswer {
                // Any of these may be about a tool's call.
                answer: Arc::new(match self.dice.below(3) {
                    0 => json!("allow"),
                    1 => json!({"decision": "allow", "arguments": {"other": 1}}),
                    _ => json!("yes"),
                }),
                by: None,
                at: 0,
            }),
            // Increases with each new wait: a wait that another one of the thread has overtaken is repeated.
            Wanted::Event => Outcome::Event {
                sequence: self.last_id,
                event: json!({"name": "go"}).into(),
            },
            Wanted::Held => {
                let holds = self.dice.below(3) == 0;
                let firings: Vec<FiringId> = holds.then(|| self.firing()).into_iter().collect();
                self.held.extend(&firings);
                Outcome::HeldByFiring(firings)
            }
        }
    }

    /// Returns the answer of a script that makes calls of every kind.
    fn script_step(&mut self) -> Value {
        let call = |world: &mut Self| {
            let number = world.dice.below(6);
            let (kind, args) = match world.dice.below(9) {
                0 => ("agent", json!({"prompt": "p"})),
                1 => ("agent", json!({"prompt": "p", "schema": {}})),
                2 => ("workflow", json!({"name": "other", "input": 1})),
                3 => ("tool", json!({"name": "t", "input": {}})),
                4 => ("ask", json!({"question": "q", "timeoutMs": 5})),
                5 => ("sleep", json!({"ms": 5})),
                6 => ("event", json!({"name": "go", "timeoutMs": 5})),
                7 => ("cancel", json!([number, number + 1])),
                // Refused, as the script of a person who made a mistake.
                _ => ("tool", json!({"name": "unknown"})),
            };
            json!({"kind": kind, "args": args, "digest": "0"})
        };
        let calls: Vec<Value> = (0..self.dice.below(4)).map(|_| call(self)).collect();
        let end = match self.dice.below(6) {
            0 => json!({"returned": 1}),
            1 => json!({"failed": {"code": "SCRIPT_ERROR", "message": "m"}}),
            _ => Value::Null,
        };
        json!({"now": 1, "calls": calls, "notes": [["info", "line"]], "end": end})
    }

    pub(crate) fn take(&mut self, effect: Effect) {
        assert!(!self.ended, "after the end: {effect:?}");
        let graph = graph();
        let (id, wanted) = match effect {
            Effect::Evaluate { id, node, what } => {
                let wanted = match what {
                    Evaluation::Edges => Wanted::Choice(graph.node(node).edges.len()),
                    Evaluation::Routes => match &graph.node(node).kind {
                        NodeKind::Route { routes, .. } => Wanted::Choice(routes.len()),
                        other => panic!("{} has no routes", other.type_name()),
                    },
                    Evaluation::Input if matches!(graph.node(node).kind, NodeKind::Map(_)) => Wanted::Items,
                    Evaluation::Value(_) | Evaluation::Input | Evaluation::Pin | Evaluation::Folds(_) => Wanted::Value,
                    Evaluation::Prompt | Evaluation::Texts => Wanted::Texts,
                };
                (id, wanted)
            }
            Effect::Function { id, .. } | Effect::Script { id, .. } | Effect::SetGlobal { id, .. } => {
                (id, Wanted::Value)
            }
            Effect::Emit(event) => {
                self.compressions.1 += u32::from(event.event_type == EventType::CompressionFailed);
                return;
            }
            Effect::Conversation { id: 0, .. } => return,
            Effect::Conversation { id, op } => {
                let wanted = match op {
                    ConversationOp::Append(_) | ConversationOp::AppendReply(_) => {
                        self.appends.insert(id);
                        Wanted::Done
                    }
                    ConversationOp::AddUserMessages(when) => {
                        let next = self.environment.user_messages.take();
                        assert!(next.is_some_and(|next| next <= when), "no message is due: {next:?}");
                        self.appends.insert(id);
                        Wanted::Done
                    }
                    ConversationOp::Apply(_) | ConversationOp::Merge(_) => Wanted::Done,
                    ConversationOp::Compress(_) => {
                        self.compressions.0 += 1;
                        Wanted::Compressed
                    }
                    ConversationOp::FinishSummary(_) => Wanted::Summarized,
                    ConversationOp::Prepare { .. } => Wanted::Prepared,
                    ConversationOp::BuiltIn(..) => Wanted::Tool { is_consented: true },
                };
                (id, wanted)
            }
            Effect::ScriptStep { id, .. } => (id, Wanted::Step),
            Effect::Model { id, node, .. } => {
                let with_tools = graph.node(node).kind.type_name() == "LLM";
                (id, Wanted::Reply { with_tools })
            }
            Effect::Tool { id, is_consented, .. } => (id, Wanted::Tool { is_consented }),
            Effect::Ask { id, .. } => (id, Wanted::Answered),
            Effect::Fork { id, .. } | Effect::Map { id, .. } => (id, Wanted::Joined),
            Effect::Child { id, .. } => (id, Wanted::Child),
            Effect::Timer { id, purpose, .. } => match purpose {
                TimerPurpose::Limit => (id, Wanted::Limit),
                TimerPurpose::Wait | TimerPurpose::Retry => (id, Wanted::Elapsed),
            },
            Effect::WaitEvent { id, .. } => (id, Wanted::Event),
            Effect::Pin { id, .. } => (id, Wanted::Done),
            Effect::RaiseAndAwaitTriggers { id, .. } => (id, Wanted::Held),
            Effect::Applied { firing, .. } => {
                let applied = self
                    .firings
                    .get_mut(&firing)
                    .unwrap_or_else(|| panic!("{firing} was never delivered"));
                *applied += 1;
                assert_eq!(*applied, 1, "firing {firing} is applied once");
                return;
            }
            Effect::Drop { id } => {
                assert!(
                    self.open.remove(&id).is_some(),
                    "{id} is dropped, and nobody waits for it"
                );
                self.over.insert(id);
                return;
            }
            Effect::Ended(end) => {
                assert!(end.status.is_final());
                assert_eq!(end.status == ThreadStatus::Completed, end.error.is_none());
                self.ended = true;
                return;
            }
        };
        assert!(id > self.last_id, "{id} comes after {}", self.last_id);
        self.last_id = id;
        self.open.insert(id, wanted);
    }

    pub(crate) fn check_end(&self) {
        for (id, wanted) in &self.open {
            assert!(
                self.appends.contains(id),
                "{id} ({wanted:?}) is neither awaited nor dropped"
            );
        }
        for (firing, applied) in &self.firings {
            assert_eq!(*applied, 1, "firing {firing} has an answer");
        }
        if self.environment.interest.contains(EventType::CompressionFailed) {
            let (asked, answered) = self.compressions;
            assert_eq!(asked, answered, "every compression is answered once");
        }
        let running = self
            .machine
            .history()
            .filter(|record| record.status == NodeStatus::Running);
        assert_eq!(running.count(), 0, "no node runs in a thread that has ended");
    }

    /// Returns the effects that the current node awaits.
    pub(crate) fn awaited(&self) -> BTreeSet<EffectId> {
        let mut found = BTreeSet::new();
        let snapshot = self.snapshot();
        let mut open = vec![&snapshot["run"]];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("id").and_then(Value::as_u64));
                    open.extend(fields.values());
                }
                Value::Array(items) => open.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        found
    }

    pub(crate) fn snapshot(&self) -> Value {
        serde_json::to_value(&self.machine).expect("it serialises")
    }

    /// Asserts that the machine is unchanged by serialization.
    pub(crate) fn check_serde(&mut self) {
        if self.dice.below(16) == 0 {
            let text = self.snapshot();
            let mut again: ThreadMachine = serde_json::from_value(text.clone()).expect("it reads again");
            again.attach(graph());
            self.machine = again;
            assert_eq!(self.snapshot(), text);
        }
    }

    /// Returns the status, with the stage of the current node.
    pub(crate) fn state(&self) -> String {
        match self.machine.status() {
            ThreadStatus::Created => "CREATED".to_owned(),
            ThreadStatus::Paused => format!("PAUSED {}", standing(&self.snapshot()["run"])),
            ThreadStatus::Running => standing(&self.snapshot()["run"]),
            ThreadStatus::Completed | ThreadStatus::Failed | ThreadStatus::Cancelled | ThreadStatus::Timeout => {
                "ended".to_owned()
            }
        }
    }
}

/// Returns the name of the variant and its stage, such as `Llm.Calling` or `Wait`.
fn standing(run: &Value) -> String {
    let variant = |value: &Value| -> (String, Value) {
        match value {
            Value::String(name) => (name.clone(), Value::Null),
            Value::Object(one) => one
                .iter()
                .next()
                .map(|(name, inner)| (name.clone(), inner.clone()))
                .unwrap_or_default(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => (String::new(), Value::Null),
        }
    };
    let (name, inner) = variant(run);
    let stage = match name.as_str() {
        "Llm" => variant(&inner["at"]).0,
        "Variable" | "Code" | "Subgraph" | "Map" | "Interaction" | "Context" => variant(&inner).0,
        _ => return name,
    };
    format!("{name}.{stage}")
}

fn model_request() -> Arc<ModelRequest> {
    Arc::new(ModelRequest {
        messages: Vec::new(),
        inserted_at: None,
        inserted: 0,
        repeated: 0,
        repairs: Repairs::default(),
        tokens: 0,
    })
}

fn seed_of(dice: &mut Dice) -> ThreadSeed {
    let graph = graph();
    let is_branch = dice.below(4) == 0;
    ThreadSeed {
        thread_id: "t".into(),
        kind: if is_branch {
            ThreadKind::Branch
        } else {
            ThreadKind::Main
        },
        path_id: is_branch.then(|| "a".into()),
        first: graph.start,
        stop_at: is_branch.then(|| graph.by_id["end"]),
        input: Arc::new(json!("in")),
        variables: Variables::default(),
        outputs: Outputs::default(),
        last: Output::default(),
        agent: None,
        trigger_depth: 0,
    }
}
