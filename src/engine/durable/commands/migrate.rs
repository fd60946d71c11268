//! Migration of live runs to another definition.
//!
//! A run is migrated only if replaying its journal under the new definition yields equal events, requests and trigger
//! decisions, and every unfinished script makes its recorded calls. Otherwise the first difference is reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::journal::Graphs;
use pirn_actors::ports::{ScriptEnd, ScriptJob};
use pirn_core::run::{Effect, ReplayStep, RunMachine, ThreadNo, TriggerDecision, TriggerDecisions, TriggerProgress};
use pirn_core::thread::{self, ScriptState, ThreadId};
use pirn_definition::definition::{Loaded, SourceFile, nearest};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::event_type::EventType;
use pirn_definition::graph::{Graph, NodeIx, NodeKind, SnippetIx};
use pirn_definition::script::ScopeValues;
use pirn_events::event::RaisedEvent;
use pirn_store::ContentHash;
use pirn_sync::completion;
use serde::Serialize;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::engine::durable::records::definition::overlay;
use crate::engine::durable::records::stored::{StoredRecords, load_unfinished};
use crate::engine::durable::resume_error::ResumeError;

/// Result of checking a live run against another definition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// True if the replay under the other definition shows no difference.
    pub fits: bool,
    /// First difference, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_difference: Option<Difference>,
}

/// Difference between the recorded run and its replay under another definition.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Number of the step that caused it; 0 for the run's start.
    pub step: u64,
    /// Node that the thread had entered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<Arc<str>>,
    /// Event or request of the recorded run; null if it has no further one.
    #[serde(rename = "was")]
    pub before: Value,
    /// Event or request under the other definition; null if there is no further one.
    #[serde(rename = "would")]
    pub after: Value,
}

/// An event, a request or a trigger decision of a replayed run.
struct TraceEntry {
    step: u64,
    node_id: Option<Arc<str>>,
    what: What,
}

enum What {
    Did(Value),
    Decided(TriggerDecision),
}

/// Everything a replayed run did, in order, up to the first step that does not fit the definition.
struct Trace {
    run_id: Arc<str>,
    graphs: Graphs,
    entries: Vec<TraceEntry>,
    step: u64,
    threads: BTreeMap<ThreadNo, Place>,
    triggers: TriggerDecisions,
    /// Recorded actions of the triggers.
    acted: TriggerProgress,
    /// Scripts that have made calls and not ended.
    scripts: Vec<OpenScript>,
}

/// A script that has made calls and not ended.
struct OpenScript {
    graph: Arc<Graph>,
    node: NodeIx,
    /// Its recorded inputs.
    state: ScriptState,
}

/// Position of a thread.
struct Place {
    workflow_id: Arc<str>,
    /// Node that the thread entered last.
    entered: Option<Arc<str>>,
}

/// Checks a run against its definition with `files` merged in; an item of `files` replaces the one with its id. Also returns
/// the source text of the merged definition.
pub(in crate::engine::durable) async fn check(
    engine: &Engine,
    run_id: &str,
    files: &[SourceFile],
) -> Result<(Migration, Arc<str>), ResumeError> {
    let (stored, _) = load_unfinished(engine, run_id).await?;
    let faulty = |faults| ResumeError::Definition {
        run_id: run_id.to_owned(),
        faults,
    };
    let loaded = Loaded::of(files);
    let definition: Arc<str> = overlay(&stored.definition, &loaded).map_err(faulty)?.into();
    check_replaced(&stored, &loaded)?;
    let (first_difference, scripts, step) = {
        // Faults of the new files are reported before the run's own definition is compiled.
        let would = Trace::of(engine, &stored, &definition)?;
        let was = Trace::of(engine, &stored, &stored.definition)?;
        // `was.acted` for both: only the recorded run shows which decisions its triggers have made.
        let first_difference = difference(made(was.entries, &was.acted), made(would.entries, &was.acted));
        // Equal histories have equal threads, so that the scripts correspond.
        let scripts: Vec<_> = was.scripts.into_iter().zip(would.scripts).collect();
        (first_difference, scripts, would.step)
    };
    let first_difference = match first_difference {
        None => script_difference(engine, &stored.run.id, scripts, step).await,
        found => found,
    };
    let migration = Migration {
        fits: first_difference.is_none(),
        first_difference,
    };
    Ok((migration, definition))
}

/// Returns an error if the files have workflows of other ids only: the run would continue unchanged.
fn check_replaced(stored: &StoredRecords, loaded: &Loaded) -> Result<(), ResumeError> {
    let below = Loaded::of(&[SourceFile::new("the run's definition", Arc::clone(&stored.definition))]);
    let (own, new) = (workflow_ids(&below), workflow_ids(loaded));
    // Files without workflows replace triggers or profiles.
    if new.is_empty() || new.iter().any(|id| own.contains(id)) {
        return Ok(());
    }
    let near = new.iter().find_map(|id| nearest(id, own.iter().copied()));
    let message = format!(
        "the files have the workflows {}, and run {} has none of them; it has {}{}",
        new.join(", "),
        stored.run.id,
        own.join(", "),
        near.map_or_else(String::new, |near| format!("; did you mean {near}?"))
    );
    Err(ResumeError::Refused(RunError::new(
        RunErrorCode::WorkflowNotFound,
        message,
    )))
}

fn workflow_ids(loaded: &Loaded) -> Vec<&str> {
    loaded.workflows.iter().map(|workflow| &*workflow.value.id).collect()
}

/// Evaluates each changed script with its recorded inputs. Returns the first one that does not make its recorded calls.
async fn script_difference(
    engine: &Engine,
    run_id: &str,
    scripts: Vec<(OpenScript, OpenScript)>,
    step: u64,
) -> Option<Difference> {
    for (was, would) in scripts {
        if was.source() == would.source() {
            continue;
        }
        let error = match would.evaluate(engine, run_id).await {
            // A script that throws has made its recorded calls before.
            Ok(answer) if answer["end"]["failed"]["code"] == RunErrorCode::ScriptError.as_str() => continue,
            Ok(answer) if answer["end"]["failed"].is_null() => continue,
            Ok(answer) => answer["end"]["failed"].clone(),
            Err(error) => json!(error),
        };
        let message = error["message"].as_str().unwrap_or_default();
        let advice = "keep the calls that the script has made, with their order and arguments, and change only what follows them";
        let shown = |kind: &str| json!({"call": error["details"]["call"], "kind": error["details"][kind]});
        let mut after = shown("now");
        after["error"] = json!({"code": error["code"], "message": format!("{message}: {advice}")});
        return Some(Difference {
            step,
            node_id: Some(Arc::clone(&would.graph.node(would.node).id)),
            before: shown("recorded"),
            after,
        });
    }
    None
}

impl OpenScript {
    fn code(&self) -> Option<SnippetIx> {
        match &self.graph.node(self.node).kind {
            NodeKind::Orchestration(script) => Some(script.code),
            _ => None,
        }
    }

    fn source(&self) -> Option<&str> {
        Some(&self.graph.snippet(self.code()?).source)
    }

    /// Evaluates the script from its start until it waits for a result that is not recorded. Nothing is called.
    async fn evaluate(&self, engine: &Engine, run_id: &str) -> Result<Arc<Value>, RunError> {
        let failed = || RunError::new(RunErrorCode::ScriptError, "the script could not be evaluated");
        let code = self.code().ok_or_else(failed)?;
        let (setter, end) = completion();
        let job = ScriptJob {
            graph: &self.graph,
            code,
            input: Arc::default(),
            scope: &ScopeValues::default(),
            run_id: &run_id.into(),
            seed: None,
            state: Some(Arc::new(self.state.clone())),
        };
        let answer = Box::new(move |end: ScriptEnd| setter.set(end.result));
        // Aborts the evaluation if this future is dropped.
        let _evaluation = engine.shared().ports().scripts.run(job, answer);
        end.wait().await.unwrap_or_else(|_| Err(failed()))
    }
}

/// Step, node and JSON description of an entry.
type Made = (u64, Option<Arc<str>>, Value);

/// Returns the entries as JSON. `acted` is what the triggers of the recorded run did.
fn made(entries: Vec<TraceEntry>, acted: &TriggerProgress) -> impl Iterator<Item = Made> {
    entries.into_iter().map(|entry| {
        let what = match entry.what {
            What::Did(what) => what,
            What::Decided(decision) => decision.made(acted),
        };
        (entry.step, entry.node_id, what)
    })
}

fn difference(mut was: impl Iterator<Item = Made>, mut would: impl Iterator<Item = Made>) -> Option<Difference> {
    loop {
        let (one, other) = match (was.next(), would.next()) {
            (None, None) => return None,
            // The node is not compared: it only describes where a difference is.
            (Some(one), Some(other)) if (one.0, &one.2) == (other.0, &other.2) => continue,
            differ => differ,
        };
        // The earlier one names the step: the other trace may have skipped it.
        let (step, node_id, _) = [&one, &other].into_iter().flatten().min_by_key(|made| made.0)?;
        return Some(Difference {
            step: *step,
            node_id: node_id.clone(),
            before: one.map(|made| made.2).unwrap_or_default(),
            after: other.map(|made| made.2).unwrap_or_default(),
        });
    }
}

impl Trace {
    /// Replays a run under a definition. The trace ends at the first step that does not fit.
    fn of(engine: &Engine, stored: &StoredRecords, definition: &str) -> Result<Self, ResumeError> {
        let run_id = || stored.run.id.clone();
        let graphs = engine
            .graphs_alone("the run's definition", definition)
            .map_err(|faults| ResumeError::Definition {
                run_id: run_id(),
                faults,
            })?;
        let begun = stored.begun(&graphs)?;
        let run_id = Arc::clone(&begun.seed.run_id);
        let outside = Loaded::of(&[SourceFile::new("the run's definition", definition)]).triggers;
        let outside = outside.into_iter().map(|trigger| trigger.value);
        let evaluator = (engine.shared().ports().evaluator)();
        let mut trace = Self {
            // A replay takes trigger actions from the journal, so the conditions of the new triggers are evaluated separately.
            triggers: TriggerDecisions::new(&run_id, &begun.seed.graph, graphs.values(), outside, evaluator),
            run_id,
            graphs: Arc::clone(&graphs),
            entries: Vec::new(),
            step: 0,
            threads: BTreeMap::new(),
            acted: TriggerProgress::default(),
            scripts: Vec::new(),
        };
        let replayed = engine
            .shared()
            .replay_seen(begun, stored.inputs.clone(), graphs, &mut |machine, seen| {
                trace.saw(machine, &seen);
            });
        // An error of the replay is not reported: the trace then lacks the remaining entries, which the comparison finds.
        if let Ok(machine) = replayed {
            let scripts = machine.unfinished_scripts().map(|(thread, state)| OpenScript {
                graph: Arc::clone(thread.graph()),
                node: thread.node(),
                state,
            });
            trace.scripts.extend(scripts);
        }
        Ok(trace)
    }

    fn saw(&mut self, machine: &RunMachine, seen: &ReplayStep<'_>) {
        self.acted.saw(seen);
        match seen {
            ReplayStep::Input(_) => self.step += 1,
            ReplayStep::Effects(at, effects) => {
                for effect in effects.iter() {
                    self.did(machine, effect);
                    // Decisions are recorded after the effect, which records the node that the thread entered last.
                    for decision in self.triggers.on(*at, effect) {
                        self.decided(effect, decision);
                    }
                }
            }
        }
    }

    /// Records a trigger's decision on an event of this effect.
    fn decided(&mut self, effect: &Effect, decision: TriggerDecision) {
        let node_id = match effect {
            Effect::Emit { thread_id, event, .. } => self.node_of(thread_id, event),
            _ => None,
        };
        self.entries.push(TraceEntry {
            step: self.step,
            node_id,
            what: What::Decided(decision),
        });
    }

    fn did(&mut self, machine: &RunMachine, effect: &Effect) {
        if let Some(emitted) = effect.emitted() {
            for (_, event) in emitted.numbered() {
                self.raised((emitted.workflow_id, emitted.thread_id), event);
            }
        }
        match effect {
            Effect::Thread { thread, effect } => {
                // A thread is entered in the map by its first event.
                let place = self.threads.get(thread);
                let graph = place.and_then(|place| self.graphs.get(&*place.workflow_id));
                if let Some(asked) = asked(effect, graph, || machine.variables_of(*thread).collect()) {
                    let node_id = place.and_then(|place| place.entered.clone());
                    self.push_entry(node_id, asked);
                }
            }
            Effect::SetTimer { timer, after_ms } => {
                self.push_entry(None, json!({"timer": format!("{timer:?}"), "afterMs": after_ms}));
            }
            Effect::StartRun(start) => {
                self.push_entry(None, json!({"workflowId": start.workflow_id, "input": start.input}));
            }
            // Recorded as events at the start of this function, or reported by events or recorded inputs.
            Effect::Emit { .. }
            | Effect::EmitAll { .. }
            | Effect::AwaitSession
            | Effect::LeaveSession(_)
            | Effect::Begin { .. }
            | Effect::Drop { .. }
            | Effect::AwaitTriggers { .. }
            | Effect::ThreadEnded { .. }
            | Effect::StopTimer { .. }
            | Effect::CallTrigger { .. }
            | Effect::QuiesceTriggers
            | Effect::Report(_)
            | Effect::Settled => {}
        }
    }

    fn raised(&mut self, (workflow_id, thread_id): (&Arc<str>, &Arc<str>), event: &RaisedEvent) {
        if let Some(thread) = ThreadId::number(&self.run_id, thread_id) {
            let place = self.threads.entry(thread as ThreadNo).or_insert_with(|| Place {
                workflow_id: Arc::clone(workflow_id),
                entered: None,
            });
            // Most requests carry no node, so the last entered one describes them.
            if event.event_type == EventType::NodeStarted {
                place.entered = own_node(event);
            }
        }
        let node_id = self.node_of(thread_id, event);
        self.push_entry(node_id, json!({"threadId": thread_id, "event": event}));
    }

    /// Returns the node that an event names, or the node that its thread entered last.
    fn node_of(&self, thread_id: &str, event: &RaisedEvent) -> Option<Arc<str>> {
        let entered = || {
            let thread = ThreadId::number(&self.run_id, thread_id)?;
            self.threads.get(&(thread as ThreadNo))?.entered.clone()
        };
        own_node(event).or_else(entered)
    }

    fn push_entry(&mut self, node_id: Option<Arc<str>>, what: Value) {
        let step = self.step;
        self.entries.push(TraceEntry {
            step,
            node_id,
            what: What::Did(what),
        });
    }
}

fn own_node(event: &RaisedEvent) -> Option<Arc<str>> {
    event.fields.get("nodeId").and_then(Value::as_str).map(Arc::from)
}

/// Returns the external request of an effect as JSON, without node indices, which depend on the file. `graph` is the graph of
/// the effect's thread, and `variables` returns the variables that the thread can read.
fn asked<'a>(
    effect: &thread::Effect,
    graph: Option<&Arc<Graph>>,
    variables: impl FnOnce() -> BTreeMap<&'a Arc<str>, &'a Arc<Value>>,
) -> Option<Value> {
    Some(match effect {
        thread::Effect::Function { id, node, input, .. } => {
            let name = graph.and_then(|graph| match &graph.node(*node).kind {
                NodeKind::Function { name, .. } => Some(name),
                _ => None,
            });
            json!({"function": id, "name": name, "input": **input.value()})
        }
        thread::Effect::Script { id, input, .. } => json!({"code": id, "input": input}),
        // The recorded answers have the calls. `script_difference` compares a changed script with them.
        thread::Effect::ScriptStep { id, .. } => json!({"script": id}),
        thread::Effect::Model {
            id, request, choice, ..
        } => {
            let messages: Vec<_> = request.built().messages.iter().map(|message| &**message).collect();
            json!({"model": id, "messages": messages, "choice": choice})
        }
        thread::Effect::Tool { id, call, .. } => json!({"tool": id, "call": call}),
        thread::Effect::Ask { id, .. } => json!({"question": id}),
        // The recorded outcome has the values, so the sources and what they read are compared: both decide the values. The other
        // values that they can read are in events.
        thread::Effect::Evaluate { id, node, what } => {
            let written = graph.map(|graph| thread::written(graph, *node, what.clone()));
            let reads = written.as_ref().map(|written| named(&written.to_string(), variables()));
            json!({"texts": id, "written": written, "variables": reads})
        }
        thread::Effect::Timer {
            id, after_ms, purpose, ..
        } => {
            json!({"timer": id, "afterMs": after_ms, "purpose": purpose})
        }
        thread::Effect::WaitEvent { id, event, .. } => json!({"wait": id, "event": event}),
        thread::Effect::Conversation { .. }
        | thread::Effect::Fork { .. }
        | thread::Effect::Map { .. }
        | thread::Effect::Child { .. }
        | thread::Effect::SetGlobal { .. }
        | thread::Effect::Pin { .. }
        | thread::Effect::Emit(_)
        | thread::Effect::RaiseAndAwaitTriggers { .. }
        | thread::Effect::Applied { .. }
        | thread::Effect::Drop { .. }
        | thread::Effect::Ended(_) => return None,
    })
}

/// Returns the variables whose names occur in `source`: those that it reads, and possibly more.
fn named(source: &str, variables: BTreeMap<&Arc<str>, &Arc<Value>>) -> Value {
    /// Maximum length of a value's JSON. A longer one is replaced by its hash, because every evaluation repeats it.
    const SHOWN: usize = 1_000;
    let read = variables.into_iter().filter(|(name, _)| source.contains(&***name));
    let shown = read.map(|(name, value)| {
        let json = value.to_string();
        let shown = match json.len() {
            0..=SHOWN => Value::clone(value),
            _ => json!(format!("sha256 {}", ContentHash::of(&json))),
        };
        (name.to_string(), shown)
    });
    shown.collect()
}
