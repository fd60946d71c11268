//! Wrappers that inject faults into models and tools.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::host::WorkClock;
use pirn_actors::journal::Graphs;
use pirn_actors::ports::{AskedCall, Model, ModelCall, ModelSession, Models, Ports, ToolOutcome, ToolSpec, Tools};
use pirn_conversation::conversation::{MessageRules, ModelRequest};
use pirn_conversation::model_call::{CallBound, FinishReason};
use pirn_core::thread::{ModelReply, ToolResult};
use pirn_definition::Millis;
use pirn_definition::definition::{InDoubt, Profile};
use pirn_definition::error::RunError;
use serde_json::{Map, Value};

/// Decides about the faults of calls. Asked when a call is made and not when its future is polled: the order of polls depends on
/// the work runtime.
pub(crate) trait FaultSource: Send + Sync + 'static {
    /// Returns the fault of a call of this profile's model.
    fn model_call(&self, profile_id: &str, call: &ModelCall) -> Fate<RunError>;
    /// Returns the fault of a tool call; a failure is the text of the tool's error.
    fn tool_call(&self, asked: &AskedCall) -> Fate<String>;
}

/// The injected faults of one call.
pub(crate) struct Fate<F> {
    /// Delay of the call.
    pub(crate) late_ms: Millis,
    pub(crate) end: End<F>,
}

/// How a call ends after its delay.
pub(crate) enum End<F> {
    /// By the model or the tool.
    Good,
    /// The call is not made: a call that fails must have had no effect. With `after_ms` the failure follows that much later.
    Fails { after_ms: Option<Millis>, failure: F },
    /// Half of the model's reply is lost.
    Truncated,
}

impl<F> Fate<F> {
    /// No fault.
    pub(crate) fn good() -> Self {
        Self {
            late_ms: 0,
            end: End::Good,
        }
    }

    /// Waits for the injected delays. Returns whether the reply is to be truncated, or the failure if the call must not be made.
    async fn pass(self, clock: &WorkClock) -> Result<bool, F> {
        if self.late_ms > 0 {
            clock.sleep(self.late_ms).await;
        }
        match self.end {
            End::Good => Ok(false),
            End::Truncated => Ok(true),
            End::Fails { after_ms, failure } => {
                if let Some(after) = after_ms {
                    clock.sleep(after).await;
                }
                Err(failure)
            }
        }
    }
}

/// Wraps the models and tools of an engine.
pub(crate) fn inject(ports: &mut Ports, source: Arc<dyn FaultSource>) {
    ports.models = Arc::new(FaultyModels {
        models: Arc::clone(&ports.models),
        source: Arc::clone(&source),
    });
    ports.tools = Arc::new(FaultyTools {
        tools: Arc::clone(&ports.tools),
        source,
    });
}

struct FaultyModels {
    models: Arc<dyn Models>,
    source: Arc<dyn FaultSource>,
}

impl Models for FaultyModels {
    fn choose(&self, profile_id: Option<&str>) -> (Arc<Profile>, Arc<dyn Model>) {
        let (profile, model) = self.models.choose(profile_id);
        let faulty = FaultyModel {
            profile: Arc::clone(&profile),
            model,
            source: Arc::clone(&self.source),
        };
        (profile, Arc::new(faulty))
    }

    fn of_run(&self, graphs: &Graphs) -> Option<Arc<dyn Models>> {
        let models = self.models.of_run(graphs)?;
        let source = Arc::clone(&self.source);
        Some(Arc::new(Self { models, source }))
    }
}

struct FaultyModel {
    profile: Arc<Profile>,
    model: Arc<dyn Model>,
    source: Arc<dyn FaultSource>,
}

impl Model for FaultyModel {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let fate = self.source.model_call(&self.profile.id, &call);
        let model = Arc::clone(&self.model);
        async move {
            let is_truncated = fate.pass(&call.clock).await?;
            let reply = model.call(call).await?;
            Ok(if is_truncated { truncated(reply) } else { reply })
        }
        .boxed()
    }

    fn answered(&self, request: &ModelRequest, session: &ModelSession) {
        self.model.answered(request, session);
    }

    fn is_external(&self) -> bool {
        self.model.is_external()
    }

    fn call_bound(&self, request: &ModelRequest, parameters: &Map<String, Value>) -> CallBound {
        self.model.call_bound(request, parameters)
    }

    fn message_rules(&self) -> MessageRules {
        self.model.message_rules()
    }
}

/// Returns the first half of a reply, without its tool calls.
fn truncated(reply: ModelReply) -> ModelReply {
    let half = reply.content.chars().count() / 2;
    ModelReply {
        content: reply.content.chars().take(half).collect(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Length,
        ..reply
    }
}

struct FaultyTools {
    tools: Arc<dyn Tools>,
    source: Arc<dyn FaultSource>,
}

impl Tools for FaultyTools {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        self.tools.specs(names)
    }

    fn in_doubt(&self, name: &str, is_consented: bool) -> Option<InDoubt> {
        self.tools.in_doubt(name, is_consented)
    }

    fn is_external(&self, name: &str) -> bool {
        self.tools.is_external(name)
    }

    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        let fate = self.source.tool_call(&asked);
        let (tools, names) = (Arc::clone(&self.tools), names.to_vec());
        async move {
            match fate.pass(&clock).await {
                Ok(_) => tools.call(&names, asked, clock).await,
                Err(content) => ToolOutcome::Result(ToolResult::failed(content)),
            }
        }
        .boxed()
    }

    fn close(&self) {
        self.tools.close();
    }
}
