//! What a thread says of itself to a host that chooses which of several things happens next.

use std::sync::Arc;

use pirn_core::graph::NodeIx;
use pirn_core::thread::Input;
use serde_json::Value;

use super::ThreadActor;
use crate::host::{Asked, Sign};

impl ThreadActor {
    /// A thread is what it has heard: a host that tells states apart hears it too.
    pub(super) fn tell_heard(&self, input: &Input) {
        self.run.host.tell(|| Sign::Heard {
            run: Arc::clone(&self.run.run_id),
            thread: self.no,
            text: format!("{input:?}"),
        });
    }

    /// What is asked of the host next is this thread's.
    pub(super) fn tell_asks(&self, node: NodeIx, what: Asked) {
        self.run.host.tell(|| Sign::Asks {
            run: Arc::clone(&self.run.run_id),
            thread: self.no,
            node: Arc::clone(&self.machine.graph().node(node).id),
            what,
        });
    }

    /// What every thread of the run sees from now on.
    pub(super) fn tell_shared(&self, name: impl FnOnce() -> String, value: &Value) {
        self.run.host.tell(|| Sign::Shared {
            run: Arc::clone(&self.run.run_id),
            name: name(),
            text: value.to_string(),
        });
    }
}
