//! Sampling requests of a server. The profile named in the server's config answers them, at the cost of the calling run.
#![allow(deprecated)] // of the protocol, not yet of its servers

use pirn_actors::ports::Sampler;
use pirn_conversation::model_call::FinishReason;
use pirn_core::thread::ModelReply;
use pirn_definition::message::{Message, Part, Role};
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ErrorData, Role as Speaker, SamplingCapability, SamplingMessage,
    SamplingMessageContentBlock,
};
use serde_json::{Map, Value, json};

pub(super) fn able() -> SamplingCapability {
    SamplingCapability::default()
}

/// Answers a sampling request with the model of a profile.
pub(super) async fn answer(
    request: CreateMessageRequestParams,
    profile_id: &str,
    sampler: Option<Sampler>,
) -> Result<CreateMessageResult, ErrorData> {
    let Some(sampler) = sampler else {
        return Err(ErrorData::invalid_request(
            "no call of a run is in progress that a model could answer",
            None,
        ));
    };
    let parameters = parameters(&request);
    let messages = messages(request).map_err(|why| ErrorData::invalid_params(why, None))?;
    let reply = sampler.ask(profile_id, messages, parameters).await;
    let reply = reply.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(result(reply, profile_id))
}

fn messages(request: CreateMessageRequestParams) -> Result<Vec<Message>, String> {
    if request.tools.is_some_and(|tools| !tools.is_empty()) {
        return Err("requests with tools are not supported".to_owned());
    }
    let system = request.system_prompt.filter(|prompt| !prompt.is_empty());
    let system = system.map(|prompt| Ok(Message::new(Role::System, prompt)));
    let said = request.messages.into_iter().map(|message| {
        let role = match message.role {
            Speaker::User => Role::User,
            Speaker::Assistant => Role::Assistant,
        };
        let parts = message.content.into_vec().into_iter().map(part);
        Ok(Message::of_parts(role, parts.collect::<Result<Vec<_>, String>>()?))
    });
    system.into_iter().chain(said).collect()
}

fn part(block: SamplingMessageContentBlock) -> Result<Part, String> {
    match block {
        SamplingMessageContentBlock::Text(text) => Ok(Part::text(text.text)),
        SamplingMessageContentBlock::Image(image) => {
            Ok(Part::image(format!("data:{};base64,{}", image.mime_type, image.data)))
        }
        _other => Err("only text and images are supported".to_owned()),
    }
}

fn parameters(request: &CreateMessageRequestParams) -> Map<String, Value> {
    let mut parameters = Map::from_iter([("maxTokens".to_owned(), json!(request.max_tokens))]);
    if let Some(temperature) = request.temperature {
        // Converts the `f32` by its decimal form: 0.7 stays 0.7, whereas a cast to `f64` gives 0.699999988079071.
        let written = temperature.to_string().parse::<f64>().unwrap_or(f64::from(temperature));
        parameters.insert("temperature".to_owned(), json!(written));
    }
    if let Some(stop) = request.stop_sequences.as_ref().filter(|stop| !stop.is_empty()) {
        parameters.insert("stop".to_owned(), json!(stop));
    }
    parameters
}

fn result(reply: ModelReply, profile_id: &str) -> CreateMessageResult {
    let why = match reply.finish_reason {
        FinishReason::Stop => CreateMessageResult::STOP_REASON_END_TURN,
        FinishReason::Length => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        FinishReason::ToolCalls => CreateMessageResult::STOP_REASON_TOOL_USE,
        other @ (FinishReason::ContentFilter
        | FinishReason::Refusal
        | FinishReason::Pause
        | FinishReason::Malformed) => other.as_str(),
    };
    let message = SamplingMessage::assistant_text(reply.content);
    CreateMessageResult::new(message, profile_id.to_owned()).with_stop_reason(why)
}
