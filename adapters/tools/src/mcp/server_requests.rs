//! Requests from a server to Pirn: elicitations, sampling requests and the list of roots.
//!
//! Such a request belongs to a tool call, and only the run of that call may answer it, but the request does not identify the
//! call. If requests can be answered, a [lane](crate::lane) therefore admits the calls of one run at a time. A request
//! that arrives during calls of several runs is declined.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pirn_actors::ports::{AskPerson, Question, Sampler};
use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    ErrorData, FormElicitationCapability, Implementation,
};
#[allow(deprecated)] // of the protocol, not yet of its servers
use rmcp::model::{CreateMessageRequestMethod, CreateMessageRequestParams, CreateMessageResult};
use rmcp::service::{RequestContext, RoleClient};

use super::sampling;

/// The calls of a server that are in progress, each with the handlers of the server's requests.
#[derive(Default)]
pub(super) struct ServerRequestRouter {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    under_way: BTreeMap<u64, CallHandlers>,
}

/// Handlers of a server's requests during a call.
#[derive(Clone, Default)]
pub(super) struct CallHandlers {
    /// Run that makes the call; `None` outside a run.
    pub(super) run: Option<Arc<str>>,
    /// Handler of elicitations.
    pub(super) ask: Option<Arc<AskPerson>>,
    /// Access to the models of the run.
    pub(super) sampler: Option<Sampler>,
}

/// A call in progress, until it is dropped.
pub(super) struct CallGuard {
    router: Arc<ServerRequestRouter>,
    number: u64,
}

impl ServerRequestRouter {
    /// Registers a call. Until the returned guard is dropped, `handlers` answer the server's requests.
    pub(super) fn enter(self: &Arc<Self>, handlers: CallHandlers) -> CallGuard {
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.under_way.insert(number, handlers);
        CallGuard {
            router: Arc::clone(self),
            number,
        }
    }

    /// Returns the handlers of the run that has calls in progress. Returns no handlers if there is no such run, or more than
    /// one.
    fn handlers(&self) -> CallHandlers {
        let calls = self.calls();
        let mut under_way = calls.under_way.values().rev();
        let Some(last) = under_way.next() else {
            return CallHandlers::default();
        };
        if under_way.any(|other| other.run != last.run) {
            tracing::warn!(
                calls = calls.under_way.len(),
                "a request of an MCP server is declined: several runs call the server, and the request does not name one"
            );
            return CallHandlers::default();
        }
        last.clone()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Poisoning is ignored: the calls are consistent whenever the lock can be released.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.router.calls().under_way.remove(&self.number);
    }
}

/// Answers the requests of a server.
pub(super) struct Handler {
    about: ClientConfig,
    router: Arc<ServerRequestRouter>,
    roots: Vec<String>,
    /// Profile that answers sampling requests; `None` if they are not supported.
    sampling: Option<String>,
}

impl Handler {
    /// Creates a handler for the calls in `router`. `roots` are the URLs of folders; `sampling` is the profile for sampling
    /// requests.
    pub(super) fn new(router: Arc<ServerRequestRouter>, roots: Vec<String>, sampling: Option<String>) -> Self {
        let mut able = ClientCapabilities::default();
        able.elicitation = Some(ElicitationCapability::new().with_form(FormElicitationCapability::new()));
        if !roots.is_empty() {
            able.roots = Some(roots::able());
        }
        if sampling.is_some() {
            able.sampling = Some(sampling::able());
        }
        let about = ClientConfig::new(able, Implementation::new("pirn", env!("CARGO_PKG_VERSION")));
        Self {
            about,
            router,
            roots,
            sampling,
        }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.about.clone()
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let declined = || Ok(ElicitResult::new(ElicitationAction::Decline));
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = request
        else {
            return declined();
        };
        let Some(ask) = self.router.handlers().ask else {
            return declined();
        };
        let Ok(schema) = serde_json::to_value(requested_schema) else {
            return declined();
        };
        match context.ct.run_until_cancelled(ask(Question { message, schema })).await {
            Some(Some(answer)) => Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer)),
            Some(None) => declined(),
            // The server has cancelled the request.
            None => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    #[allow(deprecated)] // of the protocol, not yet of its servers
    async fn create_message(
        &self,
        request: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        match &self.sampling {
            Some(profile_id) => {
                let answering = sampling::answer(request, profile_id, self.router.handlers().sampler);
                let withdrawn = || Err(ErrorData::invalid_request("the request was cancelled", None));
                context
                    .ct
                    .run_until_cancelled(answering)
                    .await
                    .unwrap_or_else(withdrawn)
            }
            None => Err(ErrorData::method_not_found::<CreateMessageRequestMethod>()),
        }
    }

    #[allow(deprecated)] // of the protocol, not yet of its servers
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Ok(roots::listed(&self.roots))
    }
}

/// Roots are deprecated in the protocol, but file servers still use them.
#[allow(deprecated)]
mod roots {
    use rmcp::model::{ListRootsResult, Root, RootsCapabilities};

    pub(super) fn able() -> RootsCapabilities {
        RootsCapabilities::default()
    }

    pub(super) fn listed(roots: &[String]) -> ListRootsResult {
        ListRootsResult::new(roots.iter().map(Root::new).collect())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::{Value, json};

    use super::*;

    /// Returns the handlers of a run that answers every question with the run id.
    fn call(run: &'static str) -> CallHandlers {
        CallHandlers {
            run: Some(run.into()),
            ask: Some(Arc::new(move |_| std::future::ready(Some(json!(run))).boxed())),
            sampler: None,
        }
    }

    #[test]
    fn a_server_request_is_answered_only_if_exactly_one_run_is_calling() {
        let router = Arc::new(ServerRequestRouter::default());
        let answer = || {
            let question = Question {
                message: String::new(),
                schema: Value::Null,
            };
            router.handlers().ask?(question).now_or_never().flatten()
        };
        assert_eq!(answer(), None);
        let first = router.enter(call("a"));
        let again = router.enter(call("a"));
        assert_eq!(answer(), Some(json!("a")));
        let other = router.enter(call("b"));
        assert_eq!(answer(), None, "it may be for either");
        drop((first, again));
        assert_eq!(answer(), Some(json!("b")));
        drop(other);
        assert_eq!(answer(), None);
    }
}
