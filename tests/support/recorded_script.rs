//! A script with its recorded results, as a SCRIPT node records them: for tests of its steps without a run.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use pirn::RunErrorCode;
use pirn::script::{CodeJob, CodeLimits, ScriptPort};
use pirn_actors::ports::{ScriptJob, Scripts};
use pirn_core::thread::{CallLimits, ScriptState, SeenBudget};
use pirn_definition::definition::{Loaded, SourceFile};
use pirn_definition::graph::{CompileContext, Graph, NodeKind, compile_loaded};
use pirn_definition::script::ScopeValues;
use serde_json::{Value, json};

use crate::world::{node, workflow};

/// A script and its recorded inputs.
pub struct RecordedScript {
    graph: Arc<Graph>,
    /// Recorded inputs of the next step.
    pub state: ScriptState,
    /// Calls without a result.
    pub running: BTreeSet<u64>,
    delivered: usize,
    limits: CodeLimits,
}

/// Answer of a step, or its error.
pub type StepResult = Result<Value, (RunErrorCode, String)>;

impl RecordedScript {
    /// Creates a script without recorded calls.
    ///
    /// # Panics
    /// If the script is invalid.
    #[must_use]
    pub fn new(code: &str, limits: CodeLimits) -> Self {
        let nodes = [
            node("start", "START", json!({})),
            node("plan", "SCRIPT", json!({ "code": code })),
            node("end", "END", json!({})),
        ];
        let text = workflow("main", &nodes, &["start>plan>end"]).to_string();
        let compiled = compile_loaded(
            &Loaded::of(&[SourceFile::new("w".to_owned(), text)]),
            &CompileContext::default(),
        );
        let graph = compiled.graphs.first();
        let graph = Arc::clone(graph.unwrap_or_else(|| panic!("{:?}: {code}", compiled.faults)));
        let state = ScriptState {
            args: Some(Arc::new(json!({ "n": 3 }))),
            seed: 11,
            now: Some(1_700_000_000_000),
            limits: CallLimits {
                calls: 10_000,
                agents: 100,
            },
            ..ScriptState::default()
        };
        Self {
            graph,
            state,
            running: BTreeSet::new(),
            delivered: 0,
            limits,
        }
    }

    fn code(&self) -> usize {
        let mut nodes = self.graph.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Orchestration(script) => Some(script.code),
            _ => None,
        });
        nodes.next().expect("a SCRIPT node") as usize
    }

    /// Returns the answer of the next step by a port.
    ///
    /// # Panics
    /// If the port answers nothing.
    pub fn step(&self, port: &ScriptPort) -> StepResult {
        let (tell, told) = mpsc::channel();
        let scope = ScopeValues::default();
        let code = self.code();
        let job = ScriptJob {
            graph: &self.graph,
            code: code.try_into().expect("few snippets"),
            input: Arc::default(),
            scope: &scope,
            run_id: &Arc::from("r"),
            seed: None,
            state: Some(Arc::new(self.state.clone())),
        };
        let _handle = port.run(job, Box::new(move |end| tell.send(end.result).unwrap_or(())));
        let result = told.recv().expect("every job is answered");
        result
            .map(|value| (*value).clone())
            .map_err(|error| (error.code, error.message.clone()))
    }

    /// Returns the answer of the next step by an evaluation from the start.
    pub fn evaluated(&self) -> StepResult {
        let source = &self.graph.snippets[self.code()].source;
        let mut job = CodeJob::new(Arc::clone(source), &ScopeValues::default());
        job.limits = self.limits;
        job.state = Some(Arc::new(self.state.clone()));
        job.run_inline().result.map_err(|fault| (fault.code, fault.message))
    }

    /// Records the answer of a step. Returns the end of the script.
    ///
    /// # Panics
    /// If the answer is invalid.
    pub fn record(&mut self, answer: &Value) -> Option<Value> {
        self.delivered = self.state.results.len();
        self.state.notes += answer["notes"].as_array().map_or(0, Vec::len) as u64;
        if let Some(tokens) = self.state.tokens {
            let seen = SeenBudget {
                total: tokens.total,
                spent: std::iter::empty().collect(),
            };
            let seen = self.state.budget.get_or_insert(seen);
            if seen.spent.last().is_none_or(|(_, before)| *before != tokens.spent) {
                seen.spent.push_back((self.state.from, tokens.spent));
            }
        }
        for call in answer["calls"].as_array().into_iter().flatten() {
            let no = self.state.known.len() as u64;
            let kind = serde_json::from_value(call["kind"].clone()).expect("a kind");
            self.state
                .known
                .push_back((kind, call["digest"].as_str().expect("a digest").into()));
            if call["kind"] == "cancel" {
                let numbers = call["args"].as_array().into_iter().flatten().filter_map(Value::as_u64);
                for no in numbers {
                    self.running.remove(&no);
                }
            } else {
                self.running.insert(no);
            }
        }
        self.state.from = self.delivered + 1;
        Some(answer["end"].clone()).filter(|end| !end.is_null())
    }

    /// Ends one of the running calls.
    pub fn end_call(&mut self, which: usize, result: u8) {
        let count = self.running.len().max(1);
        let Some(no) = self.running.iter().nth(which % count).copied() else {
            return;
        };
        self.running.remove(&no);
        let result = if result.is_multiple_of(4) {
            json!({ "call": no, "error": { "code": "TOOL_ERROR", "message": format!("e{result}") } })
        } else {
            json!({ "call": no, "value": { "v": result } })
        };
        self.state.results.push_back(Arc::new(result));
    }
}
