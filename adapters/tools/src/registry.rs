//! Tools by name, with the steps around every call: argument check, approval, concurrency limit, timeout, and containment of
//! panics.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use pirn_actors::host::{WorkClock, panic_message};
use pirn_actors::ports::{AskedCall, CallContext, Models, Sampler, Tool, ToolContext, ToolOutcome, ToolSpec, Tools};
use pirn_core::thread::{ConsentRequest, ToolResult};
use pirn_definition::definition::{BuiltInTool, InDoubt, ToolEntry};
use pirn_definition::message::Part;
use serde_json::Value;

use super::approval::{Approval, ApprovalRequest, Approver, Elicitation, Elicitations, Verdict};
use super::arguments::Checker;
use super::lane::Lane;
use super::options::ToolOptions;
use super::tool_search::search;
use pirn_models::limiter::Limiter;

/// Default maximum number of concurrent tool calls of one engine; further calls wait.
pub const DEFAULT_MAX_CALLS: usize = 256;

/// Description of a tool, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// Name, description, schema.
    pub spec: ToolSpec,
    /// Options of the tool's calls.
    pub options: ToolOptions,
}

/// Tools by name. Clones share limits.
///
/// A node's `tools` refers to them by name; a name that ends with `*` matches every tool with that prefix.
#[derive(Clone)]
pub struct ToolRegistry {
    tools: BTreeMap<String, RegisteredTool>,
    limiter: Arc<Limiter>,
    approver: Option<Approver>,
    elicitations: Option<Elicitations>,
    #[cfg(feature = "mcp")]
    servers: Vec<super::McpServers>,
}

#[derive(Clone)]
struct RegisteredTool {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
    checker: Arc<Checker>,
    options: ToolOptions,
    limiter: Option<Arc<Limiter>>,
    lane: Option<Lane>,
}

impl Default for ToolRegistry {
    fn default() -> Self {
        Self {
            tools: BTreeMap::new(),
            limiter: Limiter::of_places(DEFAULT_MAX_CALLS),
            approver: None,
            elicitations: None,
            #[cfg(feature = "mcp")]
            servers: Vec::new(),
        }
    }
}

impl ToolRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool with the default [`ToolOptions`], replacing a tool of equal name.
    pub fn register(&mut self, tool: Arc<dyn Tool>) {
        self.register_with(tool, ToolOptions::default());
    }

    /// Adds a tool.
    pub fn register_with(&mut self, tool: Arc<dyn Tool>, options: ToolOptions) {
        self.register_in(None, tool, options);
    }

    /// Adds a tool whose calls pass through a lane.
    fn register_in(&mut self, lane: Option<Lane>, tool: Arc<dyn Tool>, options: ToolOptions) {
        let spec = tool.spec();
        let registered = RegisteredTool {
            checker: Arc::new(Checker::new(spec.parameters.clone())),
            limiter: options.max_parallel.map(Limiter::of_places),
            tool,
            options,
            spec: spec.clone(),
            lane,
        };
        self.tools.insert(spec.name, registered);
    }

    /// Returns the registry with this tool added: `ToolRegistry::new().with(tool_fn(...))`.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.register(tool);
        self
    }

    /// Adds the tools of another registry whose names are not registered here, and its callbacks for approval and elicitations if
    /// none are set here. The call limit of this registry is unchanged.
    pub fn extend_missing(&mut self, other: Self) {
        for (name, tool) in other.tools {
            self.tools.entry(name).or_insert(tool);
        }
        self.approver = self.approver.take().or(other.approver);
        self.elicitations = self.elicitations.take().or(other.elicitations);
        #[cfg(feature = "mcp")]
        self.servers.extend(other.servers);
    }

    /// Adds the tools of MCP servers. The servers are stopped when the engine that owns this registry shuts down.
    #[cfg(feature = "mcp")]
    pub fn add_servers(&mut self, servers: super::McpServers) {
        for (tool, lane, options) in servers.tools() {
            self.register_in(Some(lane), tool, options);
        }
        self.servers.push(servers);
    }

    /// Returns the resources of the MCP servers.
    #[cfg(feature = "mcp")]
    pub fn resources(&self) -> impl Iterator<Item = &super::ResourceInfo> {
        self.servers.iter().flat_map(super::McpServers::resources)
    }

    /// Returns the prompts of the MCP servers.
    #[cfg(feature = "mcp")]
    pub fn prompts(&self) -> impl Iterator<Item = &super::PromptInfo> {
        self.servers.iter().flat_map(super::McpServers::prompts)
    }

    /// Sets the maximum number of concurrent calls over all tools (default [`DEFAULT_MAX_CALLS`]); further calls wait.
    pub fn set_max_calls(&mut self, calls: usize) {
        self.limiter = Limiter::of_places(calls);
    }

    /// Sets the function that decides on every call synchronously, including calls that a person has allowed.
    pub fn approve(&mut self, decide: impl Fn(&ApprovalRequest) -> Verdict + Send + Sync + 'static) {
        self.approver = Some(Approver::InPlace(Arc::new(decide)));
    }

    /// Sets the async function that decides on every call.
    pub fn approve_async(
        &mut self,
        decide: impl Fn(ApprovalRequest) -> BoxFuture<'static, Verdict> + Send + Sync + 'static,
    ) {
        self.approver = Some(Approver::Waiting(Arc::new(decide)));
    }

    /// Sets the function that answers the questions which tools put to a person during a call (elicitations of MCP servers). `None`
    /// declines. Without this function all are declined.
    pub fn on_elicitation(
        &mut self,
        answer: impl Fn(Elicitation) -> BoxFuture<'static, Option<Value>> + Send + Sync + 'static,
    ) {
        self.elicitations = Some(Elicitations::new(answer));
    }

    /// Returns the names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Returns whether a name in a node's `tools` matches any tool.
    pub fn has(&self, name: &str) -> bool {
        let name = ToolEntry::name_in(name);
        self.names().any(|known| matches_pattern(name, known))
    }

    /// Returns the tools, ordered by name.
    pub fn list(&self) -> impl Iterator<Item = ToolInfo> {
        self.tools.values().map(|found| ToolInfo {
            spec: found.spec.clone(),
            options: found.options.clone(),
        })
    }

    fn find_offered(&self, names: &[Arc<str>], name: &str) -> Option<&RegisteredTool> {
        // Of a deferred tool too: the run refuses its calls until it is revealed.
        let is_offered = names
            .iter()
            .any(|offered| matches_pattern(ToolEntry::name_in(offered), name));
        self.tools.get(name).filter(|_| is_offered)
    }

    /// Returns the tools that match a node's names, each once, in the order of the names.
    fn matching<'a>(&'a self, names: &'a [Arc<str>]) -> impl Iterator<Item = &'a RegisteredTool> {
        names.iter().enumerate().flat_map(move |(place, offered)| {
            let earlier = &names[..place];
            let these = self
                .tools
                .values()
                .filter(move |found| matches_pattern(offered, &found.spec.name));
            these.filter(move |found| !earlier.iter().any(|offered| matches_pattern(offered, &found.spec.name)))
        })
    }

    /// Returns the deferred tools of a node, each once, in the order of the names.
    fn deferred(&self, names: &[Arc<str>]) -> Vec<&RegisteredTool> {
        let listed: Vec<Arc<str>> = names
            .iter()
            .filter_map(|name| ToolEntry::deferred_name(name).map(Arc::from))
            .collect();
        let is_plain = |found: &&RegisteredTool| names.iter().any(|name| matches_pattern(name, &found.spec.name));
        // By name, because the list outlives the names that were parsed here.
        let mut found: Vec<&RegisteredTool> = Vec::new();
        for pattern in &listed {
            let these = self
                .tools
                .values()
                .filter(|tool| matches_pattern(pattern, &tool.spec.name));
            found.extend(these.filter(|tool| !is_plain(tool)));
        }
        let mut seen = BTreeSet::new();
        found.retain(|tool| seen.insert(tool.spec.name.clone()));
        found
    }

    fn unknown(&self, names: &[Arc<str>], name: &str) -> String {
        let known: Vec<&str> = self.matching(names).map(|found| found.spec.name.as_str()).collect();
        if !known.is_empty() {
            return format!("there is no tool `{name}`; there are: {}", known.join(", "));
        }
        // The node itself may list the unknown name: then its author misspelt it and needs the names of all tools.
        let is_listed = names.iter().any(|listed| ToolEntry::name_in(listed) == name);
        let registered: Vec<&str> = self.names().collect();
        match registered[..] {
            [] => format!("there is no tool `{name}`; no tools are registered"),
            _ if is_listed => format!(
                "there is no tool `{name}`; the registered tools are: {}",
                registered.join(", ")
            ),
            _ => format!("there is no tool `{name}`; this node has no tools"),
        }
    }
}

fn built_in_spec(tool: BuiltInTool, deferred: &[&RegisteredTool]) -> ToolSpec {
    let mut description = tool.description().to_owned();
    if tool == BuiltInTool::ToolSearch {
        // All names, also of revealed tools: the description is part of the prefix that the provider caches.
        for found in deferred {
            description.push_str("\n- ");
            description.push_str(&found.spec.name);
        }
    }
    ToolSpec {
        name: tool.name().to_owned(),
        description,
        parameters: tool.parameters(),
    }
}

/// Returns whether a name in a node's `tools` matches this tool.
fn matches_pattern(offered: &str, name: &str) -> bool {
    ToolEntry::includes(offered, name)
}

impl Tools for ToolRegistry {
    fn specs(&self, names: &[Arc<str>]) -> Vec<ToolSpec> {
        let registered = self.matching(names).map(|found| found.spec.clone());
        // The run itself executes built-in tools.
        let built_in = names.iter().filter_map(|name| BuiltInTool::of_name(name));
        let deferred = self.deferred(names);
        registered
            .chain(built_in.map(|tool| built_in_spec(tool, &deferred)))
            .collect()
    }

    fn is_external(&self, name: &str) -> bool {
        let waits_for_leave = matches!(self.approver, Some(Approver::Waiting(_)));
        self.tools
            .get(name)
            .is_some_and(|found| waits_for_leave || found.tool.is_external())
    }

    fn in_doubt(&self, name: &str, is_consented: bool) -> Option<InDoubt> {
        // A search changes nothing.
        if name == BuiltInTool::ToolSearch.name() {
            return Some(InDoubt::Retry);
        }
        let found = self.tools.get(name)?;
        // A call that still awaits approval has not started.
        if found.options.approval == Approval::Ask && self.approver.is_none() && !is_consented {
            return Some(InDoubt::Retry);
        }
        let harmless = || found.tool.is_read_only().then_some(InDoubt::Retry);
        found.options.in_doubt.clone().or_else(harmless)
    }

    fn call(&self, names: &[Arc<str>], asked: AskedCall, clock: WorkClock) -> BoxFuture<'static, ToolOutcome> {
        let is_search = asked.call.name == BuiltInTool::ToolSearch.name();
        if is_search && names.iter().any(|name| **name == *asked.call.name) {
            let deferred: Vec<&ToolSpec> = self.deferred(names).into_iter().map(|found| &found.spec).collect();
            let found = search(&asked.call.arguments, &deferred);
            return std::future::ready(ToolOutcome::Result(found)).boxed();
        }
        let Some(found) = self.find_offered(names, &asked.call.name).cloned() else {
            let failed = ToolResult::failed(self.unknown(names, &asked.call.name));
            return std::future::ready(ToolOutcome::Result(failed)).boxed();
        };
        let (limiter, approver) = (Arc::clone(&self.limiter), self.approver.clone());
        let elicitations = self.elicitations.clone();
        async move {
            let granted = match found.decide(asked, approver).await {
                Ok(granted) => granted,
                Err(CallRejection::Failed(message)) => return ToolOutcome::Result(ToolResult::failed(message)),
                Err(CallRejection::NeedsConsent(request)) => return ToolOutcome::NeedsConsent(request),
            };
            let sampler = granted.sampler(&clock);
            let called = found
                .call(granted, clock, (limiter, elicitations), sampler.clone())
                .await;
            let result = match called {
                Ok((content, media)) => ToolResult {
                    content,
                    media,
                    ..ToolResult::default()
                },
                Err(message) => ToolResult::failed(message),
            };
            ToolOutcome::Result(ToolResult {
                spent: sampler
                    .map(|sampler| sampler.spent())
                    .filter(|spent| !spent.is_nothing())
                    .map(Box::new),
                ..result
            })
        }
        .boxed()
    }

    fn close(&self) {
        #[cfg(feature = "mcp")]
        for servers in &self.servers {
            servers.shutdown_blocking();
        }
        #[cfg(feature = "tools")]
        super::process::wait_for_ends();
    }
}

/// A call that was approved.
struct ApprovedCall {
    arguments: Value,
    call_id: String,
    caller: Option<CallContext>,
    models: Option<Arc<dyn Models>>,
}

impl ApprovedCall {
    /// Returns the sampler through which a tool may call models, if its call comes from a run.
    fn sampler(&self, clock: &WorkClock) -> Option<Sampler> {
        let models = self.models.as_ref()?;
        Some(Sampler::new(Arc::clone(models), self.caller.clone()?, clock.clone()))
    }
}

/// Reason why a call is not made.
enum CallRejection {
    Failed(String),
    NeedsConsent(Box<ConsentRequest>),
}

impl RegisteredTool {
    /// Checks a call's arguments and obtains the approval decision.
    async fn decide(&self, asked: AskedCall, approver: Option<Approver>) -> Result<ApprovedCall, CallRejection> {
        let AskedCall {
            call,
            caller,
            models,
            is_consented,
        } = asked;
        let name = &self.spec.name;
        let arguments = if call.arguments.is_null() {
            Value::Object(serde_json::Map::new())
        } else {
            call.arguments
        };
        self.checker
            .check(&arguments)
            .map_err(|fault| CallRejection::Failed(format!("wrong arguments for `{name}`: {fault}")))?;
        let granted = ApprovedCall {
            arguments,
            call_id: call.id,
            caller,
            models,
        };
        let is_marked = self.options.approval == Approval::Ask;
        if approver.is_none() && !is_marked {
            return Ok(granted);
        }
        let request = ApprovalRequest {
            tool: name.clone(),
            arguments: granted.arguments.clone(),
            call_id: granted.call_id.clone(),
            caller: granted.caller.clone(),
            is_marked,
            is_consented,
        };
        match Approver::ask(approver, request).await {
            Verdict::Allow => Ok(granted),
            Verdict::Refuse(reason) => Err(CallRejection::Failed(format!(
                "the call of `{name}` was refused: {reason}"
            ))),
            Verdict::Ask(reason) => Err(CallRejection::NeedsConsent(Box::new(ConsentRequest {
                reason,
                arguments: granted.arguments,
                schema: self.checker.schema(),
                timeout_ms: self.options.approval_timeout,
            }))),
        }
    }

    async fn call(
        self,
        granted: ApprovedCall,
        clock: WorkClock,
        (of_all, elicitations): (Arc<Limiter>, Option<Elicitations>),
        sampler: Option<Sampler>,
    ) -> Result<(String, Vec<Part>), String> {
        let name = &self.spec.name;
        let ApprovedCall {
            arguments,
            call_id,
            caller,
            models: _,
        } = granted;
        let ask = elicitations.map(|answer| answer.during(name.clone(), call_id.clone(), caller.clone()));
        let run = caller.as_ref().map(|caller| Arc::clone(&caller.run_id));
        let run = run.unwrap_or_default();
        let lane = self.lane.as_ref().filter(|lane| lane.is_always() || ask.is_some());
        let _pass = match lane {
            Some(lane) => Some(lane.enter(&run).await),
            None => None,
        };
        // Enter the tool's limit first, so that calls waiting for a busy tool do not occupy the shared limit.
        let _own = match &self.limiter {
            Some(limiter) => Some(limiter.enter(&run, 0, &clock).await),
            None => None,
        };
        let _permit = of_all.enter(&run, 0, &clock).await;

        let timeout = self.options.timeout;
        let limit = clock.sleep(timeout);
        let panicked = |payload| Err(format!("the tool `{name}` panicked: {}", panic_message(payload)));
        let context = ToolContext {
            clock,
            call_id,
            ask,
            caller,
            sampler,
        };
        let work = match catch_unwind(AssertUnwindSafe(|| self.tool.call_in(arguments, context))) {
            Ok(work) => AssertUnwindSafe(work).catch_unwind(),
            Err(payload) => return panicked(payload),
        };
        match select(work, limit).await {
            Either::Left((Ok(result), _)) => result,
            Either::Left((Err(payload), _)) => panicked(payload),
            Either::Right(((), _)) => Err(format!(
                "the tool `{name}` took longer than {timeout} ms and was stopped"
            )),
        }
    }
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}
