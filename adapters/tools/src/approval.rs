//! Approval of tool calls: code decides before the tool runs, or requires a person's decision.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn_actors::ports::{AskPerson, CallContext, Question};
use serde_json::Value;

use super::arguments::Checker;

/// Approval policy of a tool's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// Calls run without approval.
    #[default]
    Never,
    /// Each call becomes a question of its run, like that of a USER_INTERACTION node.
    Ask,
}

/// A call to be decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The tool's name.
    pub tool: String,
    /// The arguments, which match the tool's schema.
    pub arguments: Value,
    /// The call's id, assigned by the model.
    pub call_id: String,
    /// Run, thread and node of the call; `None` for a call outside of a run.
    pub caller: Option<CallContext>,
    /// True if the tool is marked [`Approval::Ask`]. Calls of other tools run unless code refuses them.
    pub is_marked: bool,
    /// True if a person has allowed the call, possibly with changed arguments: [`Verdict::Ask`] then lets it run.
    pub is_consented: bool,
}

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allow,
    /// The call is refused; the model receives the reason.
    Refuse(String),
    /// A person decides and sees this reason: the call becomes a question of its run.
    Ask(String),
}

/// A question that a tool puts to a person during a call (an MCP server's elicitation).
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    /// The tool's name.
    pub tool: String,
    /// The call's id, assigned by the model.
    pub call_id: String,
    /// Location in the run from which the call comes; `None` for a call outside of a run.
    pub caller: Option<CallContext>,
    /// The question.
    pub question: Question,
}

/// Answers elicitations; `None` declines.
type Elicit = dyn Fn(Elicitation) -> BoxFuture<'static, Option<Value>> + Send + Sync;

/// The code that answers elicitations.
#[derive(Clone)]
pub(super) struct Elicitations(Arc<Elicit>);

impl Elicitations {
    pub(super) fn new(
        answer: impl Fn(Elicitation) -> BoxFuture<'static, Option<Value>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(answer))
    }

    /// Returns the function for questions of a tool during a call. An answer that does not fit the question's schema, or a panic,
    /// declines.
    pub(super) fn during(self, tool: String, call_id: String, caller: Option<CallContext>) -> Arc<AskPerson> {
        Arc::new(move |question: Question| {
            let schema = question.schema.clone();
            let elicitation = Elicitation {
                tool: tool.clone(),
                call_id: call_id.clone(),
                caller: caller.clone(),
                question,
            };
            let answer = Arc::clone(&self.0);
            let asked = AssertUnwindSafe(async move { answer(elicitation).await });
            async move {
                let answer = asked.catch_unwind().await.ok().flatten()?;
                Checker::new(schema).check(&answer).ok().map(|()| answer)
            }
            .boxed()
        })
    }
}

/// Decides synchronously.
type Decide = dyn Fn(&ApprovalRequest) -> Verdict + Send + Sync;

/// Decides asynchronously.
type DecideLater = dyn Fn(ApprovalRequest) -> BoxFuture<'static, Verdict> + Send + Sync;

/// The code that decides on calls.
#[derive(Clone)]
pub(super) enum Approver {
    /// Code that answers synchronously.
    InPlace(Arc<Decide>),
    /// Code that answers asynchronously.
    Waiting(Arc<DecideLater>),
}

impl Approver {
    /// Decides on a call. Without deciding code, calls of marked tools are left to a person, and all other calls run.
    pub(super) async fn ask(approver: Option<Self>, request: ApprovalRequest) -> Verdict {
        let panicked = || Verdict::Refuse("the approval callback panicked".to_owned());
        let is_consented = request.is_consented;
        let verdict = match approver {
            None if request.is_marked => Verdict::Ask("each call of it waits for consent".to_owned()),
            None => Verdict::Allow,
            Some(Self::InPlace(decide)) => {
                catch_unwind(AssertUnwindSafe(|| decide(&request))).unwrap_or_else(|_| panicked())
            }
            Some(Self::Waiting(decide)) => {
                let asked = AssertUnwindSafe(async move { decide(request).await });
                asked.catch_unwind().await.unwrap_or_else(|_| panicked())
            }
        };
        match verdict {
            Verdict::Ask(_) if is_consented => Verdict::Allow,
            verdict => verdict,
        }
    }
}
