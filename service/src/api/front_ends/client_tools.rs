//! Calls of front ends' tools: the next request of a front end contains their results, and its stream continues the run.

use std::sync::Arc;

use pirn_definition::definition::ToolDefinition;
use pirn_definition::event_type::EventType;
use serde_json::Value;

use crate::api::steering::messages::{FrontEndMessage, has_received};
use crate::http::problem::{Problem, ProblemCode, answer_problem};
use crate::runs::Run;
use crate::runs::events::event_log::RecordedEvent;
use crate::runs::events::position::Position;
use crate::state::Service;
use crate::wire::client_tools::{CallResult, definitions};
use pirn::{Interaction, RunCommand, When};

/// Parses and checks the tools in a front end's request.
pub(super) fn tools_of(tools: &Value, pointer: &str) -> Result<Vec<ToolDefinition>, Problem> {
    let read = definitions(tools)
        .map_err(|(place, detail)| Problem::new(ProblemCode::InvalidValue, detail).at(format!("{pointer}{place}")))?;
    ToolDefinition::check_client_tools(&read)
        .map_err(|error| Problem::new(ProblemCode::InvalidValue, error.to_string()).at(pointer))?;
    Ok(read)
}

/// Open calls of a run for which a request has results.
pub(super) struct AnsweredCalls {
    /// Position after which the stream continues: the end of the stream that ended with the calls.
    pub(super) after: Position,
    /// The calls, each with its answer.
    pub(super) calls: Vec<(Interaction, Value)>,
}

/// Returns the open calls of a run to which these results belong; `None` if there are none.
pub(super) async fn open_calls(run: &Run, results: &[CallResult]) -> Option<AnsweredCalls> {
    let open = run.handle.interactions().await;
    let of_client = open.into_iter().filter_map(|asked| {
        let call = Arc::clone(asked.client_tool.as_ref()?);
        Some((asked, call))
    });
    let of_client: Vec<_> = of_client.collect();
    // After a restart no stream of this process has ended. Its events up to the last call were sent before.
    let asked_at = of_client
        .iter()
        .filter_map(|(asked, _)| run.questions.asked_at(&asked.id));
    let last_asked = asked_at.map(|asked_at| Position::of(asked_at.sequence)).max();
    let last_sent = last_asked.map(|asked| after_other_calls(run, asked));
    let after = run.questions.paused_at().or(last_sent)?;
    let answered = of_client.into_iter().filter_map(|(asked, call)| {
        let (_, answer) = results.iter().find(|(id, _)| *id == call.tool_call_id)?;
        Some((asked, answer.clone()))
    });
    let calls: Vec<_> = answered.collect();
    (!calls.is_empty()).then_some(AnsweredCalls { after, calls })
}

/// Returns the end of the events of tool calls that directly follow a position. The model requested these calls together with those
/// of the client, so that they were sent with them.
fn after_other_calls(run: &Run, asked: Position) -> Position {
    let log = run.log.after(asked, usize::MAX, usize::MAX).events;
    let is_of_call = |recorded: &&RecordedEvent| {
        matches!(
            recorded.event_type(),
            EventType::ToolCallStarted | EventType::ToolCallCompleted | EventType::ToolCallFailed
        )
    };
    let read = log.iter().take_while(is_of_call).filter_map(RecordedEvent::read);
    read.last().map_or(asked, |read| read.position)
}

/// Sends the user messages that follow the results, then the results.
pub(super) async fn answer_calls(
    service: &Service,
    run: &Run,
    answered: Vec<(Interaction, Value)>,
    messages: Vec<FrontEndMessage>,
) -> Result<(), Problem> {
    // Before the results: the model call that follows them reads the messages.
    // The results are sent although a message with images only has no text.
    for (id, text) in messages.into_iter().filter(|(_, text)| !text.trim().is_empty()) {
        let when = When::BeforeNextRequest;
        service
            .send_command(run.id(), RunCommand::Say { id, text, when })
            .await?;
    }
    for (asked, answer) in answered {
        let taken = run.handle.answer(&asked.id, answer).await;
        taken.map_err(|refused| answer_problem(&refused))?;
    }
    Ok(())
}

/// Returns the position before the first of these results, if the run has received all of them: the front end repeats a request
/// whose answer it has not received.
pub(super) fn received(run: &Run, results: &[CallResult]) -> Option<Position> {
    let log = run.log.after(Position::START, usize::MAX, usize::MAX).events;
    let is_end = |recorded: &&RecordedEvent| {
        matches!(
            recorded.event_type(),
            EventType::ToolCallCompleted | EventType::ToolCallFailed
        )
    };
    let ends = log.iter().filter(is_end).filter_map(RecordedEvent::read);
    let of_client = ends.filter(|read| read.event.raised.fields.contains_key("client"));
    let places: Vec<(Position, Option<String>)> = of_client
        .map(|read| {
            (
                read.position,
                read.event.raised.fields.text("toolCallId").map(str::to_owned),
            )
        })
        .collect();
    let place = |(id, _): &CallResult| {
        places
            .iter()
            .find(|(_, of)| of.as_ref() == Some(id))
            .map(|(place, _)| *place)
    };
    let first = results
        .iter()
        .map(place)
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .min()?;
    Some(Position::of(first.sequence.saturating_sub(1)))
}

/// Returns the position as [`received`] does, if a run in progress has also received the user messages that follow the results.
pub(super) fn received_with(run: &Run, results: &[CallResult], messages: &[FrontEndMessage]) -> Option<Position> {
    // After the end, equal messages may request another reply.
    (!run.has_ended() && has_received(run, messages))
        .then(|| received(run, results))
        .flatten()
}

/// Returns the problem of results for which no call is open.
pub(super) fn not_open() -> Problem {
    let detail = "no tool call waits for these results: the run has ended, was cancelled, or is unknown here. Send a new user message \
                  to start another run";
    Problem::new(ProblemCode::InteractionClosed, detail)
}

/// Checks that no call of a run waits for a result of the front end, before it starts another run.
pub(super) async fn check_none_open(run: &Run) -> Result<(), Problem> {
    let open = run.handle.interactions().await;
    let calls = open.iter().filter_map(|asked| asked.client_tool.as_ref());
    let calls: Vec<String> = calls
        .map(|call| format!("{} ({})", call.tool_call_id, call.name))
        .collect();
    if calls.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "run {} waits for the results of tool calls: {}. Send each as an output or an error, or cancel the run",
        run.id(),
        calls.join(", ")
    );
    Err(Problem::new(ProblemCode::InterruptsOpen, detail))
}
