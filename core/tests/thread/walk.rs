//! A world that answers a thread as it likes: in any order, wrongly, twice, late; and what it must never see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_core::conversation::{Mended, ModelRequest, Spent};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::{EventMask, EventType, RaisedEvent};
use pirn_core::graph::NodeKind;
use pirn_core::message::ToolCall;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{
    CancelReason, ConversationOp, Effect, EffectId, Evaluation, FiringId, Input, Joined, ModelReply, Moment,
    NodeStatus, Outcome, Output, Outputs, Prepared, ThreadKind, ThreadMachine, ThreadSeed, TimerPurpose, ToolResult,
    TriggeredResult, Variables,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::graph::graph;
use crate::kind::{Dice, KINDS, Kind, WEIGHTS};

/// What an effect wants to hear.
#[derive(Clone, Debug)]
enum Wanted {
    Choice(usize),
    Value,
    Texts,
    Done,
    Compressed,
    Prepared,
    Reply { with_tools: bool },
    Tool,
    Joined,
    Child,
    Elapsed,
    Limit,
    Event,
    Held,
}

/// A thread and all that was asked of the world.
struct World {
    dice: Dice,
    machine: ThreadMachine,
    moment: Moment,
    open: BTreeMap<EffectId, Wanted>,
    /// Effects that stay welcome after the thread's end: a message that is being appended stands, whoever asks.
    appends: BTreeSet<EffectId>,
    last_id: EffectId,
    over: BTreeSet<EffectId>,
    next_firing: FiringId,
    held: Vec<FiringId>,
    /// Firings that were delivered, and how often they were said to be applied.
    firings: BTreeMap<FiringId, u32>,
    ended: bool,
}

/// The states a walk was in, and what it was fed there.
pub(crate) type Tried = BTreeSet<(String, Kind)>;

/// Walks for `steps` inputs, and a little beyond the end.
pub(crate) fn walk(seed: u64, steps: usize, tried: &mut Tried) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let everyone = dice.below(4) > 0;
    let mask = |is_all: bool| if is_all { EventMask::ALL } else { EventMask::NONE };
    let holding = dice.below(2) > 0;
    let mut world = World {
        machine: ThreadMachine::new(graph(), seed_of(&mut dice)),
        moment: Moment {
            random: seed,
            interest: mask(everyone),
            holding: mask(holding && everyone),
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
    };
    let cancel_at = world.dice.below(steps + steps / 4);
    for step in 0..steps {
        let kind = if step == cancel_at {
            Kind::Cancel
        } else {
            world.draw(tried)
        };
        world.feed(kind, tried);
    }
    for kind in KINDS {
        world.feed(kind, tried);
    }
    world.feed(Kind::Cancel, tried);
    if world.state().ends_with("Merging") {
        // What the conversation takes in it takes in whole; then the thread ends, whatever came of that.
        assert!(!world.ended, "in the middle of a merge");
        let kind = [Kind::Fits, Kind::Failed, Kind::Unfit][world.dice.below(3)];
        world.feed(kind, tried);
    }
    assert!(world.ended, "a cancelled thread ends");
    for kind in KINDS {
        world.feed(kind, tried);
    }
    world.check_end();
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

impl World {
    /// By weight; now and then what has not been tried in this state.
    fn draw(&mut self, tried: &Tried) -> Kind {
        if self.dice.below(2) == 0 {
            let state = self.state();
            let is_asked = !self.awaited().is_empty();
            let is_limited = self.open.values().any(|wanted| matches!(wanted, Wanted::Limit));
            let can_be = |kind: Kind| match kind {
                Kind::Fits | Kind::Unfit | Kind::Failed => is_asked,
                Kind::Limit => is_limited,
                _ => true,
            };
            let is_new = |kind: &Kind| can_be(*kind) && !tried.contains(&(state.clone(), *kind));
            let untried = KINDS.into_iter().find(is_new);
            if let Some(kind) = untried {
                return kind;
            }
        }
        // where the thread stands still, what lets it go on
        if self.dice.below(2) == 0 {
            match self.machine.status() {
                ThreadStatus::Created => return Kind::Start,
                ThreadStatus::Paused if self.dice.below(4) == 0 => return Kind::Resume,
                ThreadStatus::Paused if self.dice.below(2) == 0 => return Kind::Assign,
                _ if !self.held.is_empty() => return Kind::Triggered,
                _ => {}
            }
        }
        let all: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.dice.below(all as usize) as u64;
        for (kind, weight) in WEIGHTS {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        Kind::Fits
    }

    fn feed(&mut self, kind: Kind, tried: &mut Tried) {
        let Some(input) = self.input(kind) else { return };
        tried.insert((self.state(), kind));
        let changes_nothing = self.ended || kind == Kind::Stale;
        let before = changes_nothing.then(|| self.snapshot());
        let mut out = Vec::new();
        self.machine.step(self.moment, input, &mut out);
        if let Some(before) = before {
            assert!(out.is_empty(), "{kind:?} in {}: {out:?}", self.state());
            assert_eq!(before, self.snapshot(), "{kind:?} changes nothing");
        }
        for effect in out {
            self.take(effect);
        }
        assert_eq!(self.ended, self.machine.status().is_final());
        self.check_serde();
    }

    /// An input of that kind; none where the thread asks for nothing of the sort.
    fn input(&mut self, kind: Kind) -> Option<Input> {
        let awaited = self.awaited();
        let pick = |world: &mut Self, limits: bool| {
            let is_meant = |(id, wanted): &(&EffectId, &Wanted)| match wanted {
                Wanted::Limit => limits,
                _ => !limits && awaited.contains(id),
            };
            let ids: Vec<EffectId> = world.open.iter().filter(is_meant).map(|(id, _)| *id).collect();
            let id = *ids.get(world.dice.below(ids.len()))?;
            world.over.insert(id);
            world.open.remove(&id).map(|wanted| (id, wanted))
        };
        let answer = |effect, outcome| Some(Input::Answer { effect, outcome });
        match kind {
            Kind::Start => Some(Input::Start),
            Kind::Fits => {
                let (id, wanted) = pick(self, false)?;
                let outcome = self.outcome(&wanted);
                answer(id, outcome)
            }
            Kind::Unfit => {
                let (id, wanted) = pick(self, false)?;
                let outcome = match wanted {
                    Wanted::Elapsed => Outcome::Done,
                    _ => Outcome::Elapsed,
                };
                answer(id, outcome)
            }
            Kind::Failed => {
                let (id, _) = pick(self, false)?;
                answer(id, Outcome::Failed(RunError::new(RunErrorCode::NodeFailed, "drawn")))
            }
            Kind::Stale => {
                // answered or dropped before, or given up: a message on its way into the conversation
                let given_up = self
                    .appends
                    .iter()
                    .filter(|id| self.open.contains_key(id) && !awaited.contains(id));
                let known: Vec<EffectId> = self.over.iter().chain(given_up).copied().collect();
                let id = known.get(self.dice.below(known.len())).copied();
                answer(id.unwrap_or(self.last_id + 7), Outcome::Value(Arc::default()))
            }
            Kind::Limit => {
                let (id, _) = pick(self, true)?;
                answer(id, Outcome::Elapsed)
            }
            Kind::Cancel => Some(Input::Cancel {
                reason: CancelReason::JoinDecided,
                trigger_depth: 0,
            }),
            Kind::Pause => Some(Input::Pause { trigger_depth: 0 }),
            Kind::Resume => Some(Input::Resume { trigger_depth: 0 }),
            Kind::Triggered => Some(self.triggered()),
            Kind::Assign => Some(Input::Assign {
                trigger_id: "t".into(),
                name: "v".into(),
                value: Arc::new(json!(self.dice.below(4))),
                trigger_depth: 1,
            }),
        }
    }

    fn triggered(&mut self) -> Input {
        let place = self.dice.below(self.held.len());
        let is_held = !self.held.is_empty();
        let firing = if is_held {
            self.held.swap_remove(place)
        } else {
            self.firing()
        };
        if !self.ended {
            self.firings.insert(firing, 0);
        }
        Input::Triggered {
            firing,
            result: TriggeredResult {
                variables: vec![("v".into(), Arc::new(json!(1)))],
                conversation: self.dice.below(2) == 0,
                holds: is_held,
                is_compression: self.dice.below(2) == 0,
                trigger_depth: 1,
            },
        }
    }

    fn firing(&mut self) -> FiringId {
        self.next_firing += 1;
        self.next_firing
    }

    fn outcome(&mut self, wanted: &Wanted) -> Outcome {
        match wanted {
            Wanted::Choice(count) => {
                let drawn = self.dice.below(count + 1);
                Outcome::Choice((drawn < *count).then_some(drawn as u32))
            }
            Wanted::Value => Outcome::Value(Arc::new(json!(self.dice.below(3)))),
            Wanted::Texts => Outcome::Texts(vec![Some("text".to_owned()), None]),
            Wanted::Done => Outcome::Done,
            Wanted::Compressed if self.dice.below(2) == 0 => Outcome::Done,
            Wanted::Compressed => Outcome::Summarize(request()),
            Wanted::Prepared => {
                let crosses = self.dice.below(3) == 0;
                let event = RaisedEvent::new(EventType::TokenLimitExceeded, []);
                Outcome::Prepared(Prepared {
                    request: request(),
                    events: crosses.then_some(event).into_iter().collect(),
                })
            }
            Wanted::Reply { with_tools } => {
                let calls = if *with_tools { self.dice.below(3) } else { 0 };
                let call = |number: usize| ToolCall {
                    id: format!("c{number}"),
                    name: "t".to_owned(),
                    arguments: Value::Null,
                };
                Outcome::Reply(ModelReply {
                    content: "reply".to_owned(),
                    tool_calls: (0..calls).map(call).collect(),
                    usage: Spent::default(),
                    metadata: None,
                })
            }
            Wanted::Tool => Outcome::Tool(ToolResult {
                content: "result".to_owned(),
                failed: self.dice.below(2) == 0,
            }),
            Wanted::Joined => Outcome::Joined(Joined {
                output: Output::default(),
                variables: vec![("v".into(), Arc::new(json!(1)))],
            }),
            Wanted::Child => Outcome::Child {
                output: Arc::new(json!({"x": 1})),
            },
            Wanted::Elapsed | Wanted::Limit => Outcome::Elapsed,
            Wanted::Event => Outcome::Event(Arc::new(json!({"name": "go"}))),
            Wanted::Held => {
                let holds = self.dice.below(3) == 0;
                let firings: Vec<FiringId> = holds.then(|| self.firing()).into_iter().collect();
                self.held.extend(&firings);
                Outcome::Held(firings)
            }
        }
    }

    fn take(&mut self, effect: Effect) {
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
                    Evaluation::Value(_) | Evaluation::Input | Evaluation::Pin => Wanted::Value,
                    Evaluation::Prompt | Evaluation::Texts => Wanted::Texts,
                };
                (id, wanted)
            }
            Effect::Function { id, .. } | Effect::Script { id, .. } | Effect::SetGlobal { id, .. } => {
                (id, Wanted::Value)
            }
            Effect::Conversation { id: 0, .. } | Effect::Emit(_) => return,
            Effect::Conversation { id, op } => {
                let wanted = match op {
                    ConversationOp::Append(_) => {
                        self.appends.insert(id);
                        Wanted::Done
                    }
                    ConversationOp::Apply(_) | ConversationOp::FinishSummary(_) | ConversationOp::Merge(_) => {
                        Wanted::Done
                    }
                    ConversationOp::Compress(_) => Wanted::Compressed,
                    ConversationOp::Prepare { .. } => Wanted::Prepared,
                };
                (id, wanted)
            }
            Effect::Model { id, node, .. } => {
                let with_tools = graph.node(node).kind.type_name() == "LLM";
                (id, Wanted::Reply { with_tools })
            }
            Effect::Tool { id, .. } => (id, Wanted::Tool),
            Effect::Fork { id, .. } => (id, Wanted::Joined),
            Effect::Child { id, .. } => (id, Wanted::Child),
            Effect::Timer { id, purpose, .. } => match purpose {
                TimerPurpose::Limit => (id, Wanted::Limit),
                TimerPurpose::Wait | TimerPurpose::Retry => (id, Wanted::Elapsed),
            },
            Effect::WaitEvent { id, .. } => (id, Wanted::Event),
            Effect::Pin { id, .. } => (id, Wanted::Done),
            Effect::Announce { id, .. } => (id, Wanted::Held),
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

    fn check_end(&self) {
        for (id, wanted) in &self.open {
            assert!(
                self.appends.contains(id),
                "{id} ({wanted:?}) is neither awaited nor dropped"
            );
        }
        for (firing, applied) in &self.firings {
            assert_eq!(*applied, 1, "firing {firing} has an answer");
        }
        let running = self
            .machine
            .history()
            .filter(|record| record.status == NodeStatus::Running);
        assert_eq!(running.count(), 0, "no node runs in a thread that has ended");
    }

    /// The effects whose answers its node awaits.
    fn awaited(&self) -> BTreeSet<EffectId> {
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

    fn snapshot(&self) -> Value {
        serde_json::to_value(&self.machine).expect("it serialises")
    }

    /// A machine that was written down and read again is the same machine.
    fn check_serde(&mut self) {
        if self.dice.below(16) == 0 {
            let text = self.snapshot();
            let mut again: ThreadMachine = serde_json::from_value(text.clone()).expect("it reads again");
            again.attach(graph());
            self.machine = again;
            assert_eq!(self.snapshot(), text);
        }
    }

    /// Its status, and where it stands in its node.
    fn state(&self) -> String {
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

/// `Llm.Calling`, `Wait`: the variant's name, and its stage's.
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
        "Variable" | "Code" | "Subgraph" | "Context" => variant(&inner).0,
        _ => return name,
    };
    format!("{name}.{stage}")
}

fn request() -> Arc<ModelRequest> {
    Arc::new(ModelRequest {
        messages: Vec::new(),
        inserted_at: None,
        inserted: 0,
        mended: Mended::default(),
        tokens: 0,
    })
}

proptest! {
    #[test]
    fn whatever_comes_the_promises_hold(seed in any::<u64>(), steps in 1..80_usize) {
        walk(seed, steps, &mut Tried::new());
    }
}
