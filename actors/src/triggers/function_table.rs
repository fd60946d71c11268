//! Inline functions called by triggers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pirn_definition::definition::TriggerAction;
use pirn_events::event::Event;
use pirn_events::trigger::{TriggerMachine, WatchingTrigger};

use super::follow_up::depth_after;
use crate::calls::current_call::with_trigger_depth;
use crate::calls::input::{ActionInput, Caller};
use crate::ports::InlineFunction;

/// Functions that triggers have called. Each is looked up by name at the first firing; later firings use an index, the trigger's
/// tag.
#[derive(Default)]
pub(crate) struct FunctionTable {
    functions: Vec<Arc<InlineFunction>>,
    tags: BTreeMap<String, u32>,
    shown: ActionInput,
}

impl FunctionTable {
    /// Returns the tag of a function, adding it if necessary.
    pub(crate) fn tag(&mut self, name: &str, function: &Arc<InlineFunction>) -> u32 {
        if let Some(tag) = self.tags.get(name) {
            return *tag;
        }
        let tag = self.functions.len() as u32;
        self.functions.push(Arc::clone(function));
        self.tags.insert(name.to_owned(), tag);
        tag
    }

    /// Calls the function of a trigger's tag. None if the trigger has no tag.
    pub(crate) fn call(
        &mut self,
        triggers: &TriggerMachine,
        watcher: WatchingTrigger,
        event: &Event,
        from: &Caller<'_>,
    ) -> Option<Result<(), String>> {
        let function = self.functions.get(watcher.tag? as usize)?;
        // Looked up only if the function reads its parameters.
        let parameters = || match &triggers.definition(watcher)?.action {
            TriggerAction::Custom { parameters, .. } => Some(parameters),
            TriggerAction::StartWorkflow { .. }
            | TriggerAction::ExecuteTriggeredSubgraph(_)
            | TriggerAction::StopThread { .. }
            | TriggerAction::PauseThread { .. }
            | TriggerAction::ResumeThread { .. }
            | TriggerAction::SetVariable { .. }
            | TriggerAction::SendNotification { .. } => None,
        };
        let input = self.shown.next(event, &parameters).called_from(from);
        let call = || with_trigger_depth(depth_after(event), || function(&input));
        // The function runs inside the matcher: a panic would end the triggers of all runs of the arbiter.
        Some(match catch_unwind(AssertUnwindSafe(call)) {
            Ok(called) => called.map(|_| ()),
            Err(_) => Err(format!("function {} panicked", self.name_of(watcher))),
        })
    }

    fn name_of(&self, watcher: WatchingTrigger) -> &str {
        // A linear search is enough, because only a panic needs the name.
        let mut names = self.tags.iter();
        names
            .find(|(_, tag)| Some(**tag) == watcher.tag)
            .map_or("", |(name, _)| name)
    }
}
