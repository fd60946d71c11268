//! Requests of a server to us: questions to a person, requests to a model, and the folders it is to work in.
//!
//! Such a request belongs to a call, and that call's run alone may answer it. Nothing in it names the call: so the calls of one run at
//! a time are [made](crate::tools::lane) where somebody could answer, and a request that comes while several runs call is declined.

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

/// The calls of a server that are under way, and who answers the server's requests during each.
#[derive(Default)]
pub(super) struct Door {
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    under_way: BTreeMap<u64, Help>,
}

/// Whom a server may ask during a call.
#[derive(Clone, Default)]
pub(super) struct Help {
    /// The run that calls; none: the call is made by hand.
    pub(super) run: Option<Arc<str>>,
    /// Whoever is asked for consent.
    pub(super) ask: Option<Arc<AskPerson>>,
    /// The models of the run.
    pub(super) sampler: Option<Sampler>,
}

/// A call that is under way while this lives.
pub(super) struct UnderWay {
    door: Arc<Door>,
    number: u64,
}

impl Door {
    /// A call begins, during which questions may come; none: nobody can be asked.
    pub(super) fn enter(self: &Arc<Self>, help: Help) -> UnderWay {
        let mut calls = self.calls();
        let number = calls.next;
        calls.next += 1;
        calls.under_way.insert(number, help);
        UnderWay {
            door: Arc::clone(self),
            number,
        }
    }

    /// Returns the run that answers a request of the server: the one that calls it now. None when several do.
    fn help(&self) -> Help {
        let calls = self.calls();
        let mut under_way = calls.under_way.values().rev();
        let Some(last) = under_way.next() else {
            return Help::default();
        };
        if under_way.any(|other| other.run != last.run) {
            tracing::warn!(
                calls = calls.under_way.len(),
                "a request of an MCP server is declined: several runs call it, and the request does not say which it is for"
            );
            return Help::default();
        }
        last.clone()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Every holder leaves it whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.door.calls().under_way.remove(&self.number);
    }
}

/// Answers a server's requests.
pub(super) struct Handler {
    about: ClientConfig,
    door: Arc<Door>,
    roots: Vec<String>,
    /// The profile that answers its requests to models; none: there are none.
    sampling: Option<String>,
}

impl Handler {
    /// One that asks at `door`; `roots` are the addresses of folders, `sampling` is the profile that answers for models.
    pub(super) fn new(door: Arc<Door>, roots: Vec<String>, sampling: Option<String>) -> Self {
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
            door,
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
        let Some(ask) = self.door.help().ask else {
            return declined();
        };
        let Ok(schema) = serde_json::to_value(requested_schema) else {
            return declined();
        };
        match context.ct.run_until_cancelled(ask(Question { message, schema })).await {
            Some(Some(answer)) => Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer)),
            Some(None) => declined(),
            // The server has withdrawn it.
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
                let answering = sampling::answer(request, profile_id, self.door.help().sampler);
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

/// Roots: deprecated in the protocol, and what servers of files go by.
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

    /// A call of a run whose person answers with the run's name.
    fn call(run: &'static str) -> Help {
        Help {
            run: Some(run.into()),
            ask: Some(Arc::new(move |_| std::future::ready(Some(json!(run))).boxed())),
            sampler: None,
        }
    }

    #[test]
    fn a_request_of_a_server_is_answered_by_the_one_run_that_calls_or_by_nobody() {
        let door = Arc::new(Door::default());
        let answer = || {
            let question = Question {
                message: String::new(),
                schema: Value::Null,
            };
            door.help().ask?(question).now_or_never().flatten()
        };
        assert_eq!(answer(), None);
        let first = door.enter(call("a"));
        let again = door.enter(call("a"));
        assert_eq!(answer(), Some(json!("a")));
        let other = door.enter(call("b"));
        assert_eq!(answer(), None, "it may be for either");
        drop((first, again));
        assert_eq!(answer(), Some(json!("b")));
        drop(other);
        assert_eq!(answer(), None);
    }
}
