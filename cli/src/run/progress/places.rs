//! Locations in the workflow files of failed triggers and triggered subgraphs, which do not end the run.

use std::collections::BTreeSet;

use pirn::check::{CheckedFiles, SourceFile};
use pirn::{Event, EventType, RunError};

use crate::output::faults;
use crate::output::terminal::on_stderr;

/// Finds these locations, each once: a trigger may fail at every event.
pub(in crate::run) struct Places {
    checked: CheckedFiles,
    sources: Vec<SourceFile>,
    told: BTreeSet<(Option<String>, usize)>,
}

impl Places {
    pub(in crate::run) fn new(checked: &CheckedFiles, sources: &[SourceFile]) -> Self {
        Self {
            checked: checked.clone(),
            sources: sources.to_vec(),
            told: BTreeSet::new(),
        }
    }

    /// Returns the terminal lines that show the location at which a trigger, or the subgraph that it started, failed.
    pub(super) fn of(&mut self, event: &Event) -> Vec<String> {
        let is_trigger = match event.raised.event_type {
            EventType::TriggerFailed => true,
            EventType::TriggeredSubgraphFailed => false,
            _other => return Vec::new(),
        };
        let field = |name: &str| event.raised.fields.get(name).cloned().unwrap_or_default();
        let Ok(error) = serde_json::from_value::<RunError>(field("error")) else {
            return Vec::new();
        };
        let place = if is_trigger {
            let trigger = field("triggerId");
            let trigger = trigger.as_str().unwrap_or_default();
            self.checked.place_in_trigger(&event.workflow_id, trigger, &error)
        } else {
            self.checked.place_of(&error)
        };
        let Some(place) = place else { return Vec::new() };
        let at = place.position.map_or(0, |position| position.offset);
        if !self.told.insert((place.file.clone(), at)) {
            return Vec::new();
        }
        let shown = faults::place(&self.sources, &place, on_stderr());
        shown.trim_end().lines().map(str::to_owned).collect()
    }
}
