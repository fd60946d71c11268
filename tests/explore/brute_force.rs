//! Compares `pirn::explore` with brute force: a separate model of branches that enumerates every order.

use std::collections::{BTreeSet, VecDeque};

use pirn::explore::explore;
use pirn::{Compression, Engine};
use pirn_tests::world::{code, forked, line, node};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A node of a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// A script, which ends when the enumeration chooses it.
    Script,
    /// A script that throws.
    Fail,
    /// A script that throws if the first global variable is positive when the script starts.
    Check,
    /// Writes the branch's number to a global variable.
    Write(usize),
    /// Doubles a global variable and adds one.
    Add(usize),
}

impl Step {
    fn is_script(self) -> bool {
        matches!(self, Self::Script | Self::Fail | Self::Check)
    }
}

/// Concurrent branches and the strategy of their join.
#[derive(Clone, Debug)]
struct Race {
    branches: Vec<Vec<Step>>,
    strategy: &'static str,
    /// For each branch, whether a trigger on the end of its first node writes 10 and the branch's number to the first global variable.
    watched: Vec<bool>,
}

fn race() -> impl Strategy<Value = Race> {
    let step = prop_oneof![
        4 => Just(Step::Script),
        1 => Just(Step::Fail),
        2 => Just(Step::Check),
        2 => (0..2_usize).prop_map(Step::Write),
        2 => (0..2_usize).prop_map(Step::Add),
    ];
    let branches = prop::collection::vec(prop::collection::vec(step, 1..3), 2..4);
    let strategy = prop::sample::select(vec![
        "ALL_COMPLETED",
        "ANY_COMPLETED",
        "ALL_FAILED",
        "ANY_FAILED",
        "SUCCESS_COUNT_THRESHOLD",
    ]);
    (branches, strategy, prop::collection::vec(any::<bool>(), 3)).prop_map(|(branches, strategy, watched)| Race {
        branches,
        strategy,
        watched,
    })
}

impl Race {
    /// Returns START > FORK > the branches > JOIN > a script, which triggers may precede or follow > END.
    fn workflow(&self) -> Value {
        let global = |id: &str, place: usize, expression: &str| {
            let config = json!({ "variableName": format!("g{place}"), "expression": expression, "scope": "global" });
            node(id, "VARIABLE", config)
        };
        let one = |no: usize, (place, step): (usize, &Step)| {
            let id = format!("n{no}x{place}");
            match step {
                Step::Script => code(&id, "return 1"),
                Step::Fail => code(&id, "throw new Error('no')"),
                Step::Check => code(&id, "if (variables.g0 > 0) throw new Error('no'); return 1"),
                Step::Write(into) => global(&id, *into, &no.to_string()),
                Step::Add(to) => global(&id, *to, &format!("g{to} * 2 + 1")),
            }
        };
        let branch = |(no, steps): (usize, &Vec<Step>)| steps.iter().enumerate().map(|step| one(no, step)).collect();
        let branches: Vec<Vec<Value>> = self.branches.iter().enumerate().map(branch).collect();
        let mut join = json!({ "joinStrategy": self.strategy });
        if self.strategy == "SUCCESS_COUNT_THRESHOLD" {
            join["threshold"] = json!(2);
        }
        let mut race = forked(&branches, false, &join);
        for node in race["nodes"].as_array_mut().into_iter().flatten() {
            if node["type"] == "END" {
                node["config"] = json!({ "output": "[nodes['join'].completed, g0, g1]" });
            }
        }
        for edge in race["edges"].as_array_mut().into_iter().flatten() {
            if edge["from"] == "join" {
                edge["to"] = json!("rest");
            }
        }
        let more =
            |list: &mut Value, item: Value| list.as_array_mut().into_iter().for_each(|list| list.push(item.clone()));
        more(&mut race["nodes"], code("rest", "return 0"));
        more(&mut race["edges"], json!({ "from": "rest", "to": "end" }));
        let initial = |name: &str| json!({ "name": name, "value": -1, "scope": "global" });
        race["variables"] = json!([initial("g0"), initial("g1")]);
        let trigger = |no: usize| {
            json!({ "id": format!("t{no}"), "type": "EVENT",
                "condition": { "eventType": "NODE_COMPLETED", "expression": format!("event.nodeId == 'n{no}x0'") },
                "action": { "type": "SET_VARIABLE",
                    "parameters": { "variableName": "g0", "value": 10 + no, "scope": "global" } } })
        };
        let watched = (0..self.branches.len()).filter(|no| self.watched[*no]);
        race["triggers"] = watched.map(trigger).collect();
        race
    }

    /// Returns the join's decision, or `None` if it is still open: SPEC section 4.
    fn decided(&self, completed: usize, failed: usize) -> Option<bool> {
        let count = self.branches.len();
        let (holds, fails) = match self.strategy {
            "ALL_COMPLETED" => (completed == count, failed >= 1),
            "ANY_COMPLETED" => (completed >= 1, failed == count),
            "ALL_FAILED" => (failed == count, completed >= 1),
            "ANY_FAILED" => (failed >= 1, completed == count),
            _ => (completed >= 2, count - failed < 2),
        };
        if holds { Some(true) } else { fails.then_some(false) }
    }

    /// Returns all outcomes over all orders.
    fn outcomes(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        // A first step that does not wait may precede the first steps of all other branches.
        let has_inline = self.branches.iter().any(|steps| !steps[0].is_script());
        let start = World {
            next: vec![0; self.branches.len()],
            has_started: vec![!has_inline; self.branches.len()],
            read: vec![-1; self.branches.len()],
            globals: [-1, -1],
            fired: VecDeque::new(),
            completed: BTreeSet::new(),
            failed: 0,
        };
        self.walk(&start, &mut found);
        found
    }

    fn walk(&self, world: &World, found: &mut BTreeSet<String>) {
        // The oldest action of a trigger may arrive now. Actions arrive in the order of their events.
        if let Some(no) = world.fired.front() {
            let mut after = world.clone();
            after.globals[0] = 10 + no.cast_signed();
            after.fired.pop_front();
            self.walk(&after, found);
        }
        match self.decided(world.completed.len(), world.failed) {
            Some(true) => {
                let completed: Vec<String> = world.completed.iter().map(|no| format!("p{no}")).collect();
                let output = json!([completed, world.globals[0], world.globals[1]]);
                found.insert(format!("COMPLETED {output}"));
            }
            Some(false) => {
                found.insert("FAILED JOIN_CONDITION_NOT_MET".to_owned());
            }
            None => {
                for no in 0..self.branches.len() {
                    if world.next[no] < self.branches[no].len() {
                        let mut after = world.clone();
                        self.go(no, &mut after);
                        self.walk(&after, found);
                    }
                }
            }
        }
    }

    /// Executes a branch's next turn: it ends the current script, or takes the first step, and then takes all steps up to the
    /// next script. Actions that the turn triggers arrive at any time after it, even if the branch has ended.
    fn go(&self, no: usize, world: &mut World) {
        let steps = &self.branches[no];
        let first = world.next[no];
        let starts = !std::mem::replace(&mut world.has_started[no], true);
        for (place, step) in steps.iter().enumerate().skip(first) {
            if step.is_script() && (place > first || starts) {
                // The branch waits for this script from now on.
                world.read[no] = world.globals[0];
                return;
            }
            world.next[no] = place + 1;
            match step {
                Step::Script => {}
                Step::Check if world.read[no] <= 0 => {}
                Step::Fail | Step::Check => {
                    world.next[no] = steps.len();
                    world.failed += 1;
                    return;
                }
                Step::Write(into) => world.globals[*into] = no.cast_signed(),
                Step::Add(to) => world.globals[*to] = world.globals[*to] * 2 + 1,
            }
            if place == 0 && self.watched[no] {
                world.fired.push_back(no);
            }
        }
        world.completed.insert(no);
    }
}

#[derive(Clone)]
struct World {
    /// Index of each branch's next node; past the last one for a branch that has ended.
    next: Vec<usize>,
    /// For each branch, whether it has taken its first step.
    has_started: Vec<bool>,
    /// For each branch, the first global variable at the start of its script.
    read: Vec<isize>,
    globals: [isize; 2],
    /// Branches whose trigger has fired and whose action has not arrived.
    fired: VecDeque<usize>,
    completed: BTreeSet<usize>,
    failed: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn an_exploration_and_brute_force_find_equal_outcomes(race in race()) {
        let workflow = race.workflow().to_string();
        let explorer = || explore(Engine::builder().workflows(&*workflow));
        let explored = explorer().max_schedules(20_000).run().expect("explored");
        prop_assert!(explored.complete, "{explored}");
        let told = explored.outcomes.iter().map(|outcome| match &outcome.error {
            None => format!("{} {}", outcome.status.as_str(), outcome.output),
            Some(error) => format!("{} {}", outcome.status.as_str(), error.code.as_str()),
        });
        prop_assert_eq!(told.collect::<BTreeSet<String>>(), race.outcomes(), "{}", explored);
        prop_assert_eq!(explored.outcomes.len(), race.outcomes().len(), "{}", explored);
        for outcome in &explored.outcomes {
            let replayed = explorer().replay(&outcome.replay).expect("replayed");
            prop_assert_eq!(&replayed, outcome, "{}", explored);
        }
    }
}

#[test]
fn a_compression_in_the_middle_of_a_race_adds_no_outcome() {
    let ask = |id: &str| {
        node(
            id,
            "LLM",
            json!({ "prompt": format!("question {id} of some length, and some more") }),
        )
    };
    let branches = [vec![ask("a"), ask("b")], vec![code("c", "return 1")]];
    let mut race = forked(
        &branches,
        false,
        &json!({ "joinStrategy": "ANY_COMPLETED", "mainPathId": "p0" }),
    );
    race["config"] = json!({ "tokenLimit": 60 });
    let outcomes = |builder: pirn::EngineBuilder| {
        let explored = explore(builder.workflows(race.to_string())).run().expect("explored");
        assert!(explored.complete, "{explored}");
        let told = explored.outcomes.iter().map(|outcome| {
            let code = outcome.error.as_ref().map(|error| error.code.as_str());
            json!([outcome.status, outcome.output, code]).to_string()
        });
        told.collect::<BTreeSet<String>>()
    };
    let without = outcomes(Engine::builder());
    assert_eq!(without.len(), 2, "either is first: {without:?}");
    assert_eq!(
        outcomes(Engine::builder().compression(&Compression::keep_system_recent(2))),
        without
    );
}

#[test]
fn a_race_in_a_loop_is_explored_in_every_iteration() {
    let turn = |no: usize| assign(&format!("w{no}"), &no.to_string());
    let mut workflow = forked(
        &[
            vec![code("a", "return 1"), turn(0)],
            vec![code("b", "return 1"), turn(1)],
        ],
        false,
        &json!({ "joinStrategy": "ALL_COMPLETED" }),
    );
    workflow["variables"] = json!([{ "name": "seen", "value": "", "scope": "global" }]);
    for edge in workflow["edges"].as_array_mut().into_iter().flatten() {
        if edge["from"] == "join" {
            edge["condition"] = json!("seen.length >= 4");
        }
    }
    for node in workflow["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "END" {
            node["config"] = json!({ "output": "seen" });
        }
    }
    let edges = workflow["edges"].as_array_mut().expect("edges");
    edges.push(json!({ "from": "join", "to": "fork", "condition": "seen.length < 4" }));
    let explored = explore(Engine::builder().workflows(workflow.to_string()))
        .run()
        .expect("explored");
    assert!(explored.complete, "{explored}");
    let outputs: BTreeSet<String> = explored
        .outcomes
        .iter()
        .map(|outcome| outcome.output.to_string())
        .collect();
    let expected = ["0101", "0110", "1001", "1010"].map(|seen| format!("{seen:?}"));
    assert_eq!(outputs, BTreeSet::from(expected), "{explored}");
}

fn assign(id: &str, value: &str) -> Value {
    node(
        id,
        "VARIABLE",
        json!({ "variableName": "seen", "expression": format!("seen + '{value}'"), "scope": "global" }),
    )
}

#[test]
fn a_trigger_acts_before_or_after_the_pending_script() {
    let mut one = line(
        "one",
        &[code("a", "return 1"), code("b", "return 2"), code("c", "return last")],
    );
    one["variables"] = json!([{ "name": "last", "value": 0, "scope": "global" }]);
    one["triggers"] = json!([{ "id": "t", "type": "EVENT", "condition": { "eventType": "NODE_COMPLETED", "expression": "event.nodeId == 'a'" },
        "action": { "type": "SET_VARIABLE", "parameters": { "variableName": "last", "value": 1, "scope": "global" } } }]);
    let explored = explore(Engine::builder().workflows(one.to_string()))
        .run()
        .expect("explored");
    assert!(explored.complete, "{explored}");
    let outputs: BTreeSet<String> = explored
        .outcomes
        .iter()
        .map(|outcome| outcome.output.to_string())
        .collect();
    assert_eq!(outputs, BTreeSet::from(["0".to_owned(), "1".to_owned()]), "{explored}");
}

#[test]
fn an_event_reaches_its_wait_before_or_after_the_next_script_of_its_raiser() {
    let raiser = vec![
        code("a", "return 1"),
        assign("go", "0"),
        code("b", "return 2"),
        assign("w", "2"),
    ];
    let waiter = vec![
        node("wait", "WAIT", json!({ "event": "VARIABLE_CHANGED" })),
        assign("v", "1"),
    ];
    let mut race = forked(&[raiser, waiter], false, &json!({ "joinStrategy": "ALL_COMPLETED" }));
    race["variables"] = json!([{ "name": "seen", "value": "", "scope": "global" }]);
    for node in race["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "END" {
            node["config"] = json!({ "output": "seen" });
        }
    }
    let explored = explore(Engine::builder().workflows(race.to_string()))
        .run()
        .expect("explored");
    assert!(explored.complete, "{explored}");
    let outputs: BTreeSet<String> = explored
        .outcomes
        .iter()
        .map(|outcome| outcome.output.to_string())
        .collect();
    let expected = ["012", "021"].map(|seen| format!("{seen:?}"));
    assert_eq!(outputs, BTreeSet::from(expected), "{explored}");
}
