//! Large tool results in a store: each is a separate content, stored once for all runs, and referred to by the step that received
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::journal::Graphs;
use pirn_core::run::{JournaledInput, Message, ToThread};
use pirn_core::thread::{Input, Outcome};
use pirn_store::{Content, ContentHash};
use serde_json::{Value, json};

/// Minimum size in bytes of a result that is stored separately.
// A smaller result costs less inside of its record than as a separate row with a name.
const LARGE: usize = 4 << 10;

/// JSON pointer to a tool's result in a step, and the field of the object that replaces the string.
const RESULT: &str = "/message/Thread/1/Input/Answer/outcome/Tool/content";
const KEPT: &str = "kept";

/// Start of the object that replaces a result. Serialized JSON strings escape their quotes, so it cannot occur within one.
const REFERENCE: &str = "\"content\":{\"kept\":\"";

/// Returns whether large results of runs of these workflows are stored separately.
pub(in crate::engine::durable) fn are_kept_apart(graphs: &Graphs) -> bool {
    graphs.values().any(|graph| graph.config.artifact_tokens.is_some())
}

/// Splits a step that contains a large result into the step without it and the result. Returns `None` for any other step.
pub(in crate::engine::durable) fn without_result(
    input: &JournaledInput,
) -> Option<serde_json::Result<(String, Content)>> {
    let Message::Thread(_, ToThread::Input(Input::Answer { outcome, .. })) = &input.message else {
        return None;
    };
    let Outcome::Tool(result) = outcome else { return None };
    // The length comes first, because the conversion to a JSON tree copies the whole step.
    (result.content.len() >= LARGE).then(|| {
        let content = Content::new(result.content.as_str());
        let mut step = serde_json::to_value(input)?;
        if let Some(place) = step.pointer_mut(RESULT) {
            *place = json!({ KEPT: content.hash().to_string() });
        }
        Ok((step.to_string(), content))
    })
}

/// Parses a step that refers to a result in `texts`. Returns `None` if the step contains its result inline.
pub(in crate::engine::durable) fn with_result(
    body: &str,
    texts: &BTreeMap<ContentHash, Arc<str>>,
) -> Option<Result<JournaledInput, String>> {
    if texts.is_empty() || !body.contains(REFERENCE) {
        return None;
    }
    let mut step: Value = serde_json::from_str(body).ok()?;
    let place = step.pointer_mut(RESULT)?;
    let hash = place.get(KEPT)?.as_str()?.to_owned();
    let text = ContentHash::parse(&hash).and_then(|hash| texts.get(&hash));
    Some(match text {
        Some(text) => {
            *place = Value::String(text.to_string());
            serde_json::from_value(step).map_err(|error| error.to_string())
        }
        None => Err(format!("the tool result {hash} is missing in the store")),
    })
}

/// Returns the hashes in a step that may refer to results. Arguments of calls may have objects of the same form.
pub(in crate::engine::durable) fn named_results(body: &str) -> impl Iterator<Item = ContentHash> {
    let references = body.split(REFERENCE).skip(1);
    references.filter_map(|rest| ContentHash::parse(rest.split_once('"')?.0))
}
