//! The open questions of all runs.

use std::sync::Arc;

use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::interactions::OpenInteraction;
use crate::api::query::{Parameters, Scoped, page_limit};
use crate::http::json::Json;
use crate::http::problem::Problem;
use crate::runs::Run;
use crate::runs::store::stored::AskedQuestion;

/// Default number of questions.
const PAGE: usize = 100;

/// Number of runs in memory that are asked for their questions at once.
const CONCURRENT: usize = 16;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionParameters {
    /// Maximum number of questions: 1 to 1,000, by default 100.
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<usize>,
}

/// An open question, with its run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInteraction {
    /// Id of the run.
    run_id: String,
    /// Id of the run's workflow.
    workflow_id: String,
    /// Time of the question, in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_at: Option<u64>,
    /// End of the time limit, in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(flatten)]
    question: OpenInteraction,
}

impl RunInteraction {
    fn new(run_id: &str, workflow_id: &str, AskedQuestion { question, asked_at }: AskedQuestion) -> Self {
        let expires_at = asked_at
            .zip(question.timeout_ms)
            .map(|(at, limit)| at.saturating_add(limit));
        Self {
            run_id: run_id.to_owned(),
            workflow_id: workflow_id.to_owned(),
            asked_at,
            expires_at,
            question: question.into(),
        }
    }
}

/// Open questions of all runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct AllInteractions {
    /// The questions in the order in which they were asked.
    interactions: Vec<RunInteraction>,
    /// True if there are more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

/// Lists the open questions of all runs: those in memory, and those of the store that wait for an answer.
#[utoipa::path(
    get, operation_id = "listAllInteractions", path = "/v1/interactions", tag = "interactions", params(QuestionParameters),
    responses(
        (status = 200, description = "The questions", body = AllInteractions),
        (status = 503, description = "Too many stored runs are being read", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn list(
    Scoped(service): Scoped,
    Parameters(parameters): Parameters<QuestionParameters>,
) -> Result<Json<AllInteractions>, Problem> {
    let limit = page_limit(parameters.limit, PAGE)?;
    // One more than the limit: its presence shows that there are more.
    let asking = service.runs().asking(limit + 1);
    let in_memory = stream::iter(asking).map(of_run).buffered(CONCURRENT);
    let mut found: Vec<RunInteraction> = in_memory.flat_map(stream::iter).collect().await;
    // Stored questions may be older than those in memory.
    let is_elsewhere = |id: &str| service.runs().find(id).is_none();
    for (run, questions) in service.archive().waiting(is_elsewhere).await? {
        found.extend(
            questions
                .into_iter()
                .map(|asked| RunInteraction::new(&run.id, &run.workflow, asked)),
        );
    }
    let more = found.len() > limit;
    found.sort_by(|a, b| (a.asked_at, &a.question.id).cmp(&(b.asked_at, &b.question.id)));
    found.truncate(limit);
    Ok(Json(AllInteractions {
        interactions: found,
        more,
    }))
}

/// Returns the open questions of a run in memory.
async fn of_run(run: Arc<Run>) -> Vec<RunInteraction> {
    let open = run.handle.interactions().await.into_iter();
    let asked = open.map(|question| {
        let asked_at = run.questions.asked_at(&question.id).map(|asked| asked.at);
        RunInteraction::new(run.id(), &run.info.workflow_id, AskedQuestion { question, asked_at })
    });
    asked.collect()
}
