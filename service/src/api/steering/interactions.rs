//! Questions to people: the list of open ones, and answers to them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::control::Told;
use crate::api::query::{Path, Scoped};
use crate::api::runs::find;
use crate::body::JsonBody;
use crate::http::json::Json;
use crate::http::problem::{Problem, ProblemCode, answer_problem};
use crate::runs::Run;
use crate::state::Service;
use pirn::{AnswerRefused, ClientCall, Interaction, RunCommand, ToolConsent};

/// A question that waits for a person.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenInteraction {
    /// Id of the question.
    pub(super) id: String,
    /// The node that raised the question.
    node_id: String,
    /// Id of the thread that asked the question.
    thread_id: String,
    /// The question.
    question: String,
    /// The person or role that should answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    assignee: Option<String>,
    /// JSON Schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    schema: Option<Map<String, Value>>,
    /// The answers to choose from.
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<Value>>,
    /// Time limit from the question on, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// The tool call that waits for consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<CallToConsent>,
    /// The tool call that the run's client executes.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_tool: Option<CallOfClient>,
}

/// A tool call that the client of the run executes. The answer is its result: `{"output": VALUE}` or `{"error": TEXT}`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallOfClient {
    /// The tool.
    name: String,
    /// The arguments of the call.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The model's id of the call.
    tool_call_id: String,
}

impl From<&ClientCall> for CallOfClient {
    fn from(call: &ClientCall) -> Self {
        let ClientCall {
            name,
            arguments,
            tool_call_id,
        } = call.clone();
        Self {
            name,
            arguments,
            tool_call_id,
        }
    }
}

/// A tool call that needs a person's consent. The answer is `"allow"`, `"refuse"`,
/// `{"decision": "allow", "arguments"?: {...}}` or `{"decision": "refuse", "reason"?: TEXT}`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CallToConsent {
    /// The tool.
    name: String,
    /// The requested arguments.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The model's id of the call.
    tool_call_id: String,
    /// The reason for which the call needs consent.
    reason: String,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    schema: Value,
}

impl From<&ToolConsent> for CallToConsent {
    fn from(call: &ToolConsent) -> Self {
        let ToolConsent {
            name,
            arguments,
            tool_call_id,
            reason,
            schema,
        } = call.clone();
        Self {
            name,
            arguments,
            tool_call_id,
            reason,
            schema,
        }
    }
}

impl From<Interaction> for OpenInteraction {
    fn from(interaction: Interaction) -> Self {
        Self {
            id: interaction.id,
            node_id: interaction.node_id.to_string(),
            thread_id: interaction.thread_id.to_string(),
            question: interaction.question.to_string(),
            assignee: interaction.assignee.as_deref().map(str::to_owned),
            schema: interaction.schema.map(|schema| (*schema).clone()),
            choices: interaction.choices.map(|choices| (*choices).clone()),
            timeout_ms: interaction.timeout_ms,
            tool: interaction.tool.as_deref().map(CallToConsent::from),
            client_tool: interaction.client_tool.as_deref().map(CallOfClient::from),
        }
    }
}

/// The open questions of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct Interactions {
    /// Open questions, ordered by thread.
    interactions: Vec<OpenInteraction>,
}

/// Lists the open questions of a run.
#[utoipa::path(
    get, operation_id = "listInteractions", path = "/v1/runs/{id}/interactions", tag = "interactions", params(("id" = String, Path, description = "The run")),
    responses(
        (status = 200, description = "The questions", body = Interactions),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(Scoped(service): Scoped, Path(id): Path<String>) -> Result<Json<Interactions>, Problem> {
    let open = service.questions(&id).await?;
    Ok(Json(Interactions {
        interactions: open.into_iter().map(OpenInteraction::from).collect(),
    }))
}

/// An answer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenAnswer {
    /// An answer that matches the question's choices and schema.
    answer: Value,
    /// Author of the answer.
    by: Option<String>,
}

/// Answers a question, once.
#[utoipa::path(
    post, operation_id = "answerInteraction", path = "/v1/interactions/{id}", tag = "interactions",
    params(("id" = String, Path, description = "The question")),
    request_body = GivenAnswer,
    responses(
        (status = 200, description = "The answer was accepted", body = Told),
        (status = 404, description = "There is no such run", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The question was answered or withdrawn", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The answer does not match the question", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn answer(
    Scoped(service): Scoped,
    Path(id): Path<String>,
    body: JsonBody<GivenAnswer>,
) -> Result<Json<Told>, Problem> {
    let GivenAnswer { answer, by } = body.value;
    let id = service.scope().run_id(&id).into_owned();
    let by = by.or_else(|| service.caller().verified_name());
    let run = run_id_of(&id).to_owned();
    if run.is_empty() {
        let detail = format!("there is no question {id}: the id of a question is RUN.THREAD.NUMBER");
        return Err(Problem::new(ProblemCode::UnknownRun, detail));
    }
    let told = RunCommand::Answer {
        interaction_id: id,
        answer,
        by,
    };
    // A run that has ended has no open question.
    let closed = |problem: Problem| {
        if problem.code() == ProblemCode::RunEnded.as_str() {
            answer_problem(&AnswerRefused::NotOpen)
        } else {
            problem
        }
    };
    service.send_command(&run, told).await.map_err(closed)?;
    Ok(Json(Told::done()))
}

/// Returns the run of a question.
pub(in crate::api) fn run_of(service: &Service, interaction: &str) -> Result<Arc<Run>, Problem> {
    find(service, run_id_of(interaction))
}

/// Returns the run's id: the id of a question is RUN.THREAD.NUMBER.
pub(in crate::api) fn run_id_of(interaction: &str) -> &str {
    interaction.rsplitn(3, '.').nth(2).unwrap_or_default()
}
