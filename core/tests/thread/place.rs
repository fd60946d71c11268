//! A branch may have the place of a thread that has ended.

use std::sync::Arc;

use pirn_core::thread::{BranchSeed, Output, Outputs, Snapshot, ThreadMachine, Variables};
use serde_json::{Value, json};

use crate::graph::graph;
use crate::world::World;

impl World {
    /// Nothing of the thread that has just ended is found in a branch that takes its place, whether the two start with
    /// the same or not.
    pub(crate) fn check_place(&mut self) {
        let own = self.machine.snapshot();
        let other = Snapshot {
            input: Arc::new(json!("another")),
            variables: Variables::default(),
            outputs: Outputs::default(),
            last: Output::from(json!([1])),
        };
        for snapshot in [own, other] {
            let graph = graph();
            let seed = BranchSeed {
                run_id: &"t".into(),
                no: 1,
                path_id: &"b".into(),
                first: graph.by_id["end"],
                stop_at: graph.start,
                snapshot: &snapshot,
                trigger_depth: 3,
            };
            let anew = ThreadMachine::branch(&graph, &seed);
            self.machine.become_branch(&graph, &seed);
            assert_eq!(self.snapshot(), written(&anew), "in the place of another");
            assert!(Arc::ptr_eq(self.machine.graph(), &graph));
        }
    }
}

fn written(machine: &ThreadMachine) -> Value {
    serde_json::to_value(machine).expect("it serialises")
}
