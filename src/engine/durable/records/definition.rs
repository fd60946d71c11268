//! Definition of a run: every workflow that its engine had when the run started, as one JSON source that is stored once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use pirn_actors::journal::Graphs;
use pirn_definition::definition::{Fault, Loaded, SourceFile, TriggerDefinition};
use pirn_definition::graph::{Compiled, Graph};
use pirn_store::{Content, ContentHash};

/// JSON sources of an engine's workflows, triggers and profiles.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<Texts>);

#[derive(Default)]
struct Texts {
    /// Workflows by graph number.
    workflows: BTreeMap<u64, String>,
    /// Triggers outside of workflows, by id.
    triggers: BTreeMap<String, String>,
    profiles: BTreeMap<String, String>,
    /// The definition that was requested last.
    last: Option<Last>,
}

/// The definition of a set of graphs.
struct Last {
    graphs: Graphs,
    text: Arc<str>,
    /// Set when the hash was requested, or when the text equals that of a stored definition.
    hash: Option<ContentHash>,
    content: Option<Content>,
}

impl Definitions {
    /// Adds the compiled sources of newly loaded files. Sources of graphs in neither `known` nor `compiled` are removed: `known`
    /// are the earlier graphs, with which runs may still start.
    pub(crate) fn extend(&self, loaded: &Loaded, compiled: &Compiled, known: &Graphs) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |uid: u64| known.values().any(|graph| graph.uid == uid);
        // Without this, an engine that reloads edited files for weeks would retain the source of every version.
        texts.workflows.retain(|uid, _| is_known(*uid));
        for workflow in &loaded.workflows {
            let is_its = |graph: &&Arc<Graph>| *graph.workflow_id == *workflow.value.id;
            if let Some(graph) = compiled.graphs.iter().find(is_its) {
                texts.workflows.insert(graph.uid, written(&workflow.value));
            }
        }
        for trigger in &loaded.triggers {
            texts.triggers.insert(trigger.value.id.clone(), written(&trigger.value));
        }
        for profile in &loaded.profiles {
            texts.profiles.insert(profile.value.id.clone(), written(&profile.value));
        }
        // The bundle also contains triggers and profiles, which may have changed although the graphs are the same.
        texts.last = None;
    }

    /// Returns the source of a graph's workflow.
    pub(crate) fn workflow(&self, graph: &Graph) -> Option<String> {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.workflows.get(&graph.uid).cloned()
    }

    /// Returns the loaded triggers outside of workflows.
    pub(crate) fn triggers(&self) -> Vec<TriggerDefinition> {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let source = bundle([].into_iter(), texts.triggers.values(), [].into_iter());
        // Parsed again: the text is that of a trigger that was loaded without a fault.
        let loaded = Loaded::of(&[SourceFile::new("triggers", source)]);
        loaded.triggers.into_iter().map(|trigger| trigger.value).collect()
    }

    /// Returns the definition of a run that starts with these graphs.
    pub(crate) fn of(&self, graphs: &Graphs) -> Content {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = texts.last(graphs);
        // Hashed once for a set of graphs: every start of a run needs the content, and the bundle has all workflows.
        let content = last.content.get_or_insert_with(|| Content::new(Arc::clone(&last.text)));
        last.hash = Some(content.hash());
        content.clone()
    }

    /// Returns whether the definition of these graphs equals `text`, which is stored under `hash`. Equal texts are not hashed
    /// again.
    pub(in crate::engine::durable) fn is(&self, graphs: &Graphs, hash: ContentHash, text: &str) -> bool {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = texts.last(graphs);
        // A comparison of bytes is cheaper than a hash, and after it the hash alone decides.
        if last.hash.is_none() && *last.text == *text {
            last.hash = Some(hash);
        }
        last.hash == Some(hash)
    }
}

impl Texts {
    fn last(&mut self, graphs: &Graphs) -> &mut Last {
        // The engine shares one map between runs until the next load, so a pointer comparison suffices.
        let known = self.last.take().filter(|last| Arc::ptr_eq(&last.graphs, graphs));
        let last = known.unwrap_or_else(|| {
            // Look up by graph number and not by id: a run that is starting may still use graphs from before a reload.
            let workflows = graphs.values().filter_map(|graph| self.workflows.get(&graph.uid));
            let text = bundle(workflows, self.triggers.values(), self.profiles.values());
            Last {
                graphs: Arc::clone(graphs),
                text: text.into(),
                hash: None,
                content: None,
            }
        });
        self.last.insert(last)
    }
}

/// Merges loaded files into a definition: a loaded item replaces the one with its id.
pub(in crate::engine::durable) fn overlay(definition: &str, loaded: &Loaded) -> Result<String, Vec<Fault>> {
    let below = Loaded::of(&[SourceFile::new("the run's definition", definition)]);
    // These can only be faults of the new files: the definition was valid when it was stored.
    if !loaded.faults.is_empty() {
        return Err(loaded.faults.clone());
    }
    let (mut workflows, mut triggers, mut profiles) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    // The order makes a loaded item replace the one with its id.
    for part in [&below, loaded] {
        let each = part.workflows.iter().map(|workflow| &workflow.value);
        workflows.extend(each.map(|workflow| (workflow.id.clone(), written(workflow))));
        let each = part.triggers.iter().map(|trigger| &trigger.value);
        triggers.extend(each.map(|trigger| (trigger.id.clone(), written(trigger))));
        let each = part.profiles.iter().map(|profile| &profile.value);
        profiles.extend(each.map(|profile| (profile.id.clone(), written(profile))));
    }
    Ok(bundle(workflows.values(), triggers.values(), profiles.values()))
}

/// Joins the JSON sources of the parts into one.
fn bundle<'a>(
    workflows: impl Iterator<Item = &'a String>,
    triggers: impl Iterator<Item = &'a String>,
    profiles: impl Iterator<Item = &'a String>,
) -> String {
    let list = |texts: Vec<&str>| texts.join(",");
    let (workflows, triggers, profiles) = (
        list(workflows.map(String::as_str).collect()),
        list(triggers.map(String::as_str).collect()),
        list(profiles.map(String::as_str).collect()),
    );
    format!(r#"{{"workflows":[{workflows}],"triggers":[{triggers}],"profiles":[{profiles}]}}"#)
}

/// Serializes a definition, which cannot fail.
fn written(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
