//! Large tool results in a store: each a text of its own, once for all runs, and named in the step that it came with.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_actors::journal::Graphs;
use pirn_core::run::{Message, ToThread, Told};
use pirn_core::thread::{Input, Outcome};
use pirn_store::{Content, ContentHash};
use serde_json::{Value, json};

/// The bytes from which on a result is a text of its own.
const LARGE: usize = 4 << 10;

/// The place of a tool's result in a step, and the field that stands there in place of a text.
const RESULT: &str = "/message/Thread/1/Input/Answer/outcome/Tool/content";
const KEPT: &str = "kept";

/// True if results of runs over these workflows are texts of their own.
pub(super) fn are_kept_apart(graphs: &Graphs) -> bool {
    graphs.values().any(|graph| graph.config.artifact_tokens.is_some())
}

/// A step without the large result that it is about, and that; none: any other step.
pub(super) fn without_result(told: &Told) -> Option<serde_json::Result<(String, Content)>> {
    let Message::Thread(_, ToThread::Input(Input::Answer { outcome, .. })) = &told.message else {
        return None;
    };
    let Outcome::Tool(result) = outcome else { return None };
    (result.content.len() >= LARGE).then(|| {
        let content = Content::new(result.content.as_str());
        let mut step = serde_json::to_value(told)?;
        if let Some(place) = step.pointer_mut(RESULT) {
            *place = json!({ KEPT: content.hash().to_string() });
        }
        Ok((step.to_string(), content))
    })
}

/// Reads a step, whose result, where it is a text of its own, is among these.
pub(super) fn with_result(body: &str, texts: &BTreeMap<ContentHash, Arc<str>>) -> Option<Result<Told, String>> {
    // No text of JSON has these quotes.
    if texts.is_empty() || !body.contains("\"content\":{\"kept\":\"") {
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
        None => Err(format!("the tool's result {hash} is not kept")),
    })
}
