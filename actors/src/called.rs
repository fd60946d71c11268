//! The inline functions that triggers call.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pirn_core::definition::TriggerAction;
use pirn_core::event::Event;
use pirn_core::trigger::{TriggerMachine, Watcher};

use crate::cause::at_depth;
use crate::input::Shown;
use crate::ports::InlineFunction;
use crate::triggers::depth_after;

/// Functions that triggers have called: each is looked up by its name when a trigger first fires, and is the trigger's mark
/// from then on.
#[derive(Default)]
pub(crate) struct Called {
    functions: Vec<Arc<InlineFunction>>,
    marks: BTreeMap<String, u32>,
    shown: Shown,
}

impl Called {
    /// What marks a trigger that calls this function.
    pub(crate) fn mark(&mut self, name: &str, function: &Arc<InlineFunction>) -> u32 {
        if let Some(mark) = self.marks.get(name) {
            return *mark;
        }
        let mark = self.functions.len() as u32;
        self.functions.push(Arc::clone(function));
        self.marks.insert(name.to_owned(), mark);
        mark
    }

    /// Calls the function that marks the trigger; none where none does.
    pub(crate) fn call(
        &mut self,
        triggers: &TriggerMachine,
        watcher: Watcher,
        event: &Event,
    ) -> Option<Result<(), String>> {
        let function = self.functions.get(watcher.tag? as usize)?;
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
        let input = self.shown.next(event, &parameters);
        let call = || at_depth(depth_after(event), || function(&input));
        Some(match catch_unwind(AssertUnwindSafe(call)) {
            Ok(called) => called.map(|_| ()),
            Err(_) => Err(format!("function {} panicked", self.name_of(watcher))),
        })
    }

    fn name_of(&self, watcher: Watcher) -> &str {
        let mut names = self.marks.iter();
        names
            .find(|(_, mark)| Some(**mark) == watcher.tag)
            .map_or("", |(name, _)| name)
    }
}
