//! Random workflows with random triggers, generated from a seed.

use std::collections::BTreeMap;

use pirn_tests::world::{node, wait};
use serde_json::{Value, json};

/// Random numbers from a seed (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize].clone()
    }
}

/// The action of a trigger, in the detail that the checks need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Does {
    /// A sub-workflow that summarizes, either before the call that would exceed the limit or concurrently with it.
    Squeeze,
    /// A detached run that summarizes.
    SqueezeDetached,
    /// A sub-workflow that adds one message.
    Add,
    /// A sub-workflow that sets a variable.
    Assign,
    /// A sub-workflow that fails.
    Fail,
    /// A detached run that does not touch the conversation.
    Start,
    Notify,
    Custom,
    SetVariable,
    Pause,
    Resume,
    /// Stops the thread that raised the event.
    Stop,
}

/// A trigger of the scenario, and the events that it has to match.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) id: String,
    pub(crate) does: Does,
    pub(crate) event_type: String,
    /// The node of the events; `None` matches every node.
    pub(crate) node_id: Option<String>,
    pub(crate) max: Option<u64>,
    /// True if the trigger watches every workflow, and not only the main workflow's threads.
    pub(crate) everywhere: bool,
}

/// A scenario.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The workflows with triggers and a token limit.
    pub(crate) bundle: Value,
    /// The workflows without triggers and without a token limit.
    pub(crate) plain: Value,
    pub(crate) watches: Vec<Watch>,
    /// Nodes that wait for an event, with the event's name, by node id.
    pub(crate) waits: BTreeMap<String, &'static str>,
    /// True if the run is idle before its end for long enough that every effect of a trigger has been applied.
    pub(crate) is_calm: bool,
    /// Turns that the conversation starts with, after a system message.
    pub(crate) turns: u64,
}

impl Shape {
    pub(crate) fn of(seed: u64) -> Self {
        let mut draft = Draft {
            dice: Dice::new(seed),
            nodes: vec![node("start", "START", json!({}))],
            edges: Vec::new(),
            last: "start".to_owned(),
            top: Vec::new(),
            all: Vec::new(),
            waits: BTreeMap::new(),
        };
        let is_calm = draft.dice.chance(70);
        for _ in 0..3 + draft.dice.roll(6) {
            draft.segment();
        }
        if is_calm {
            // Triggered sub-workflows run one after another, and each takes effect between two nodes. These nodes provide enough
            // such safe points.
            for id in (0..7).map(|place| format!("rest-{place}")) {
                draft.link(&id);
                draft.nodes.push(wait(&id, 100_000));
            }
        }
        draft.link("end");
        draft.nodes.push(node("end", "END", json!({})));
        let plain_main = json!({
            "id": "main", "nodes": draft.nodes, "edges": draft.edges,
            "variables": [{"name": "t", "type": "number", "value": 0}, {"name": "tv", "type": "string", "value": ""}],
        });
        let watches: Vec<Watch> = draft.watches();
        let mut main = plain_main.clone();
        main["config"] = json!({"tokenLimit": 40 + draft.dice.roll(400),
            "compression": {"strategy": "keep_system_recent", "parameters": {"count": 2}}});
        let mut inside = Vec::new();
        let mut outside = Vec::new();
        for watch in &watches {
            let trigger = draft.trigger(watch);
            if watch.everywhere {
                outside.push(trigger);
            } else {
                inside.push(trigger);
            }
        }
        main["triggers"] = json!(inside);
        let mut called = called();
        let profiles = json!([{"id": "m", "provider": "m"}]);
        let plain = json!({"workflows": [plain_main, called], "profiles": profiles});
        called["config"] = json!({"tokenLimit": 40 + draft.dice.roll(400)});
        let mut workflows = vec![main, called];
        workflows.extend(subs(&mut draft.dice));
        let bundle = json!({"workflows": workflows, "triggers": outside, "profiles": profiles});
        Self {
            bundle,
            plain,
            watches,
            is_calm,
            turns: draft.dice.roll(6),
            waits: draft.waits,
        }
    }
}

struct Draft {
    dice: Dice,
    nodes: Vec<Value>,
    edges: Vec<Value>,
    last: String,
    /// Ids of the main thread's nodes.
    top: Vec<String>,
    /// Ids of all nodes, including those of branches.
    all: Vec<String>,
    waits: BTreeMap<String, &'static str>,
}

impl Draft {
    fn link(&mut self, id: &str) {
        self.edges.push(json!({"from": self.last, "to": id}));
        id.clone_into(&mut self.last);
    }

    fn segment(&mut self) {
        let id = format!("n{}", self.all.len());
        if self.dice.chance(15) {
            return self.fork(&id);
        }
        self.place(&id, true);
        self.top.push(id);
    }

    /// Appends a node. A node that waits for an event is followed by another, at which the thread continues even if the wait
    /// fails.
    fn place(&mut self, id: &str, is_top: bool) {
        let mut step = self.step(id, is_top);
        self.link(id);
        if self.waits.contains_key(id) {
            let after = format!("{id}-after");
            step["onError"] = json!({"targetNodeId": after});
            self.link(&after);
            self.nodes.push(node(&after, "CODE", json!({"function": "noop"})));
        }
        self.nodes.push(step);
        self.all.push(id.to_owned());
    }

    fn fork(&mut self, id: &str) {
        let (fork, join) = (format!("{id}-fork"), format!("{id}-join"));
        let paths: Vec<String> = (0..2 + self.dice.roll(2)).map(|path| format!("{id}p{path}")).collect();
        self.link(&fork);
        let mut firsts = Vec::new();
        for path in &paths {
            fork.clone_into(&mut self.last);
            for place in 0..=self.dice.roll(2) {
                self.place(&format!("{path}-{place}"), false);
            }
            firsts.push(format!("{path}-0"));
            self.link(&join);
        }
        let strategy = if self.dice.chance(30) { "serial" } else { "parallel" };
        self.nodes.push(node(
            &fork,
            "FORK",
            json!({"forkPathIds": paths, "childNodeIds": firsts, "forkStrategy": strategy}),
        ));
        self.nodes.push(node(
            &join,
            "JOIN",
            json!({"forkPathIds": paths, "joinStrategy": "ALL_COMPLETED"}),
        ));
        self.top.push(fork);
        self.all.push(join);
    }

    fn step(&mut self, id: &str, is_top: bool) -> Value {
        let pad = "~ words of no weight ".repeat(self.dice.roll(6) as usize);
        let delay = self.dice.roll(30);
        let saying = |text: String| json!({"operation": "insert", "messages": [{"role": "user", "content": text}]});
        match self.dice.roll(if is_top { 13 } else { 10 }) {
            0..=3 => node(
                id,
                "LLM",
                json!({"profileId": "m", "prompt": format!("ask {id} {pad}"), "parameters": {"delayMs": delay}}),
            ),
            4 => node(
                id,
                "LLM",
                json!({"profileId": "m", "prompt": format!("tool {id} {pad}"), "tools": ["note"],
                    "parameters": {"delayMs": delay}}),
            ),
            5 | 6 => node(id, "CONTEXT_PROCESSOR", saying(format!("say {id} {pad}"))),
            7 => node(id, "CODE", json!({"function": "noop"})),
            8 => wait(id, u32::try_from(delay).unwrap_or(0)),
            9 => {
                let event = self.dice.pick(&[
                    "MESSAGE_ADDED",
                    "NODE_COMPLETED",
                    "VARIABLE_CHANGED",
                    "NOTIFICATION",
                    "COMPRESSION_COMPLETED",
                    "TRIGGERED_SUBGRAPH_STARTED",
                    "TRIGGERED_SUBGRAPH_COMPLETED",
                    "nobody-says-so",
                ]);
                self.waits.insert(id.to_owned(), event);
                let seconds = f64::from(u32::try_from(delay).unwrap_or(0) * 3 + 1) / 1000.0;
                node(id, "WAIT", json!({"event": event, "timeout": seconds}))
            }
            10 => node(
                id,
                "CONTEXT_PROCESSOR",
                json!({"operation": "insert", "position": 1,
                    "messages": [{"role": "user", "content": format!("put {id} {pad}")}]}),
            ),
            11 => node(
                id,
                "VARIABLE",
                json!({"variableName": format!("v-{id}"), "expression": "1"}),
            ),
            _ => node(
                id,
                "SUBGRAPH",
                json!({"subgraphId": "called", "conversation": "share", "input": format!("'{id}'")}),
            ),
        }
    }

    fn watches(&mut self) -> Vec<Watch> {
        let mut watches = Vec::new();
        for place in 0..=self.dice.roll(5) {
            let does = self.dice.pick(&[
                Does::Squeeze,
                Does::Squeeze,
                Does::SqueezeDetached,
                Does::Add,
                Does::Add,
                Does::Assign,
                Does::Fail,
                Does::Start,
                Does::Notify,
                Does::Custom,
                Does::SetVariable,
                Does::Pause,
                Does::Stop,
            ]);
            let id = format!("t{place}");
            let max = self.dice.chance(25).then(|| 1 + self.dice.roll(3));
            let everywhere = self.dice.chance(30);
            let mut watch = Watch {
                id,
                does,
                event_type: "NODE_COMPLETED".to_owned(),
                node_id: None,
                max,
                everywhere: false,
            };
            match does {
                Does::Squeeze | Does::SqueezeDetached => {
                    "TOKEN_LIMIT_EXCEEDED".clone_into(&mut watch.event_type);
                    watch.everywhere = everywhere;
                }
                Does::Notify | Does::Custom | Does::Start | Does::Fail if everywhere => {
                    "MESSAGE_ADDED".clone_into(&mut watch.event_type);
                }
                Does::Add | Does::Assign | Does::Fail | Does::Start | Does::Notify | Does::Custom => {
                    let types = ["NODE_COMPLETED", "NODE_STARTED"];
                    self.dice.pick(&types).clone_into(&mut watch.event_type);
                    watch.node_id = Some(self.dice.pick(&self.all));
                }
                Does::SetVariable | Does::Pause => watch.node_id = Some(self.dice.pick(&self.top)),
                Does::Stop => {
                    let waits = self.top.iter().filter(|id| self.waits.contains_key(*id));
                    let waits: Vec<String> = waits.cloned().collect();
                    let is_inside = self.dice.chance(60);
                    let from = if is_inside && !waits.is_empty() {
                        &waits
                    } else {
                        &self.top
                    };
                    watch.node_id = Some(self.dice.pick(from));
                    if is_inside {
                        "NODE_STARTED".clone_into(&mut watch.event_type);
                    }
                }
                Does::Resume => {}
            }
            watches.push(watch);
        }
        if watches.iter().any(|watch| watch.does == Does::Pause) {
            watches.push(Watch {
                id: "resume".to_owned(),
                does: Does::Resume,
                event_type: "THREAD_PAUSED".to_owned(),
                node_id: None,
                max: None,
                everywhere: false,
            });
        }
        watches
    }

    fn trigger(&mut self, watch: &Watch) -> Value {
        let is_waited_for = self.dice.chance(50);
        let execute = |sub: &str, timeout: f64| {
            json!({"type": "EXECUTE_TRIGGERED_SUBGRAPH", "parameters":
                {"triggeredWorkflowId": sub, "waitForCompletion": is_waited_for, "timeout": timeout}})
        };
        let start = |workflow: &str| json!({"type": "START_WORKFLOW", "parameters": {"workflowId": workflow}});
        let action = match watch.does {
            Does::Squeeze => execute(
                self.dice
                    .pick(&["squeeze", "squeeze", "squeeze", "squeeze-back", "squeeze-not"]),
                30.0,
            ),
            Does::SqueezeDetached => {
                start(
                    self.dice
                        .pick(&["detached", "detached", "detached", "detached-broken", "detached-fails"]),
                )
            }
            Does::Add => execute("add", 30.0),
            Does::Assign => execute("assign", 30.0),
            Does::Fail => execute(self.dice.pick(&["fails", "panics", "hangs"]), 0.02),
            Does::Start => start("other"),
            Does::Notify => json!({"type": "SEND_NOTIFICATION", "parameters": {"message": "noted"}}),
            Does::Custom => {
                json!({"type": "CUSTOM", "parameters": {"function": "count", "parameters": {"id": watch.id}}})
            }
            Does::SetVariable => json!({"type": "SET_VARIABLE", "parameters": {"variableName": "t", "value": 7}}),
            Does::Pause => json!({"type": "PAUSE_THREAD", "parameters": {}}),
            Does::Resume => json!({"type": "RESUME_THREAD", "parameters": {}}),
            Does::Stop => json!({"type": "STOP_THREAD", "parameters": {}}),
        };
        let mut condition = json!({"eventType": watch.event_type});
        if let Some(node_id) = &watch.node_id {
            condition["expression"] = json!(format!("event.nodeId === '{node_id}'"));
        }
        let mut trigger = json!({"id": watch.id, "type": "EVENT", "condition": condition, "action": action});
        if let Some(max) = watch.max {
            trigger["maxTriggers"] = json!(max);
        }
        trigger
    }
}

fn in_row(id: &str, nodes: &[Value]) -> Value {
    let ids: Vec<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let edges: Vec<Value> = ids
        .windows(2)
        .map(|pair| json!({"from": pair[0], "to": pair[1]}))
        .collect();
    json!({"id": id, "nodes": nodes, "edges": edges})
}

/// Returns a workflow that the main workflow calls with its own conversation.
fn called() -> Value {
    in_row(
        "called",
        &[
            node("start", "START", json!({})),
            node(
                "c-ask",
                "LLM",
                json!({"profileId": "m", "prompt": "ask {{input}}", "parameters": {"delayMs": 3}}),
            ),
            node("end", "END", json!({})),
        ],
    )
}

fn subs(dice: &mut Dice) -> Vec<Value> {
    let from = || node("s", "START_FROM_TRIGGER", json!({}));
    let back = |config: Value| node("c", "CONTINUE_FROM_TRIGGER", config);
    let mut rest = || wait("w", u32::try_from(dice.roll(60)).unwrap_or(0));
    let squeeze = |delay: u64| {
        node(
            "z",
            "LLM",
            json!({"profileId": "m", "prompt": "squeeze", "parameters": {"delayMs": delay}}),
        )
    };
    let replace = || {
        node(
            "r",
            "CONTEXT_PROCESSOR",
            json!({"operation": "replace", "target": "all", "replacement": "{{z.content}}"}),
        )
    };
    let (start, end) = (|| node("s", "START", json!({})), || node("e", "END", json!({})));
    let result = |function: &str| node("z", "CODE", json!({"function": function, "input": "input"}));
    let mark = || node("k", "CODE", json!({"function": "mark", "input": "input"}));
    vec![
        in_row("squeeze", &[from(), rest(), squeeze(9), replace(), back(json!({}))]),
        in_row(
            "squeeze-back",
            &[
                from(),
                squeeze(15),
                replace(),
                back(json!({"conversationHistoryCallback": {"lastN": 1}})),
            ],
        ),
        in_row("squeeze-not", &[from(), rest(), back(json!({}))]),
        in_row("detached", &[start(), mark(), rest(), result("squeeze"), end()]),
        in_row("detached-broken", &[start(), mark(), rest(), result("broken"), end()]),
        in_row("detached-fails", &[start(), mark(), rest(), result("fails"), end()]),
        in_row("other", &[start(), rest(), end()]),
        in_row(
            "add",
            &[
                from(),
                rest(),
                node(
                    "a",
                    "CONTEXT_PROCESSOR",
                    json!({"operation": "insert", "messages":
                        [{"role": "user", "content": "trig {{input.triggerId}} {{input.event.sequence}}"}]}),
                ),
                back(json!({"conversationHistoryCallback": {"lastN": 1}})),
            ],
        ),
        in_row(
            "assign",
            &[
                from(),
                rest(),
                node(
                    "v",
                    "VARIABLE",
                    json!({"variableName": "tv", "expression": "input.triggerId"}),
                ),
                back(json!({"variableCallback": {"includeVariables": ["tv"]}})),
            ],
        ),
        in_row("fails", &[from(), rest(), result("fails"), back(json!({}))]),
        in_row("panics", &[from(), rest(), result("panics"), back(json!({}))]),
        in_row("hangs", &[from(), wait("w", 1_000_000), back(json!({}))]),
    ]
}
