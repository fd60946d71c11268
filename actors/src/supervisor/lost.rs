//! Threads and conversations whose actor died.

use std::sync::Arc;

use pirn_core::conversation::{Conversation, Spent};
use pirn_core::error::{RunError, RunErrorCode};
use pirn_core::event::EventType;
use pirn_core::status::ThreadStatus;
use pirn_core::thread::{Input, Output, ThreadEnd};
use serde_json::{Value, json};

use super::{SupervisorActor, ThreadNo};
use crate::contain::Exit;
use crate::thread::{Ended, ThreadMsg};

impl SupervisorActor {
    /// A thread's actor is gone: where it had not ended, it died, and left what is known of it.
    pub(super) fn exited(&mut self, thread: ThreadNo, exit: &Exit, known: Option<Box<Ended>>) {
        let Some(child) = self.threads.get(thread).filter(|child| !child.has_ended()) else {
            return;
        };
        let (status, mut error) = match exit {
            Exit::Panicked { message } => (
                ThreadStatus::Failed,
                RunError::new(
                    RunErrorCode::ActorPanicked,
                    format!("the thread's actor panicked: {message}"),
                ),
            ),
            Exit::Stopped | Exit::Dropped => (
                ThreadStatus::Cancelled,
                RunError::new(RunErrorCode::Cancelled, "the thread's actor was stopped"),
            ),
        };
        let left = known.as_ref().and_then(|known| known.left.as_ref());
        let node_id = left.map(|left| Arc::clone(&child.graph.node(left.node).id));
        error.thread_id = Some(self.threads.id(thread));
        error.path_id = child.path_id().cloned();
        error.node_id = node_id;
        self.emit(thread, EventType::ThreadFailed, || {
            vec![
                ("status", json!(status)),
                ("pathId", json!(error.path_id)),
                ("output", Value::Null),
                ("error", json!(error)),
            ]
        });
        let mut ended = known.map_or_else(nothing_known, |known| *known);
        ended.end = ThreadEnd {
            status,
            output: Output::default(),
            error: Some(error),
        };
        self.ended(thread, ended);
    }

    /// A thread lives on its conversation: without it, it ends, and takes with it what it started.
    pub(super) fn conversation_lost(&mut self, thread: ThreadNo, message: &str, known: Option<Box<Conversation>>) {
        if thread == 0 && known.is_some() {
            self.said = known;
        }
        let message = format!("the conversation's actor panicked: {message}");
        let error = RunError::new(RunErrorCode::ActorPanicked, message);
        self.tell(thread, ThreadMsg::Input(Input::Fail(error)));
    }
}

fn nothing_known() -> Ended {
    Ended {
        end: ThreadEnd {
            status: ThreadStatus::Failed,
            output: Output::default(),
            error: None,
        },
        spent: Spent::default(),
        left: None,
    }
}
