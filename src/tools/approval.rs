//! Consent to a tool call: somebody is asked before the tool runs, and may refuse with a reason.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{CallContext, Question};
use serde_json::Value;

/// The calls of a tool that wait for somebody's consent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// None.
    #[default]
    Never,
    /// Each call; where nobody can be asked it is refused.
    Ask,
}

/// A call that somebody is asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The tool's name.
    pub tool: String,
    /// Its arguments; they fit the tool's schema.
    pub arguments: Value,
    /// The model's id of the call.
    pub call_id: String,
    /// Which run, thread and node ask; none where a call is made by hand.
    pub caller: Option<CallContext>,
    /// True if the tool is marked [`Approval::Ask`]. One that is not would run if nobody were asked.
    pub is_marked: bool,
    /// Something that the tool asks while it works (an MCP server's elicitation): [`Verdict::Answer`] answers it, anything else
    /// declines. None: it is asked whether the tool may run.
    pub question: Option<Question>,
}

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Allow,
    /// It may not; the model is told why.
    Refuse(String),
    /// The answer to its question; one that does not fit the question's schema declines. A call that is asked about may run.
    Answer(Value),
}

/// Decides at once.
type Decide = dyn Fn(&ApprovalRequest) -> Verdict + Send + Sync;

/// Decides after a while: a person is asked.
type DecideLater = dyn Fn(ApprovalRequest) -> BoxFuture<'static, Verdict> + Send + Sync;

/// The code or person that is asked.
#[derive(Clone)]
pub(super) enum Approver {
    /// Code that answers at once.
    InPlace(Arc<Decide>),
    /// Code that waits for the outside world.
    Waiting(Arc<DecideLater>),
}

impl Approver {
    /// Asks about a call. Where nobody is there to ask, what is marked is refused.
    pub(super) async fn ask(approver: Option<Self>, request: ApprovalRequest) -> Verdict {
        let panicked = || Verdict::Refuse("whoever was asked for consent panicked".to_owned());
        match approver {
            None if request.is_marked => {
                Verdict::Refuse("it needs somebody's consent, and nobody is there to give it".to_owned())
            }
            None => Verdict::Allow,
            Some(Self::InPlace(decide)) => {
                catch_unwind(AssertUnwindSafe(|| decide(&request))).unwrap_or_else(|_| panicked())
            }
            Some(Self::Waiting(decide)) => {
                let asked = AssertUnwindSafe(async move { decide(request).await });
                asked.catch_unwind().await.unwrap_or_else(|_| panicked())
            }
        }
    }
}
