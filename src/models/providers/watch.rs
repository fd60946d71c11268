//! What a stream says on its way, for the case that it breaks off: the tokens reported so far, and whether the reply was
//! finished.

use std::sync::{Mutex, MutexGuard, PoisonError};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use pirn_core::conversation::Spent;
use serde_json::Value;

use super::protocol::Protocol;

/// Hears every frame of one stream.
pub(super) struct Watch {
    protocol: Protocol,
    heard: Mutex<Heard>,
}

#[derive(Clone, Copy, Default)]
struct Heard {
    spent: Spent,
    is_finished: bool,
}

impl Watch {
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            heard: Mutex::default(),
        }
    }

    /// The tokens that the provider has reported so far.
    pub(super) fn spent(&self) -> Spent {
        self.heard().spent
    }

    /// Whether the provider has said why the reply ends.
    pub(super) fn is_finished(&self) -> bool {
        self.heard().is_finished
    }

    fn hear(&self, frame: &Value) {
        let mut heard = self.heard();
        match self.protocol {
            Protocol::OpenAi => {
                heard.is_finished |= frame.pointer("/choices/0/finish_reason").is_some_and(Value::is_string);
                heard.note(frame, "/usage/prompt_tokens", "/usage/completion_tokens");
            }
            Protocol::Anthropic => {
                let of = |name: &str| frame.pointer(&format!("/message/usage/{name}")).and_then(Value::as_u64);
                if let Some(input) = of("input_tokens") {
                    let cached =
                        ["cache_creation_input_tokens", "cache_read_input_tokens"].map(|name| of(name).unwrap_or(0));
                    heard.set(
                        Some(cached.into_iter().fold(input, u64::saturating_add)),
                        of("output_tokens"),
                    );
                }
                heard.note(frame, "", "/usage/output_tokens");
            }
            Protocol::Gemini => {
                let of = |name: &str| frame.pointer(&format!("/usageMetadata/{name}")).and_then(Value::as_u64);
                let output = [of("candidatesTokenCount"), of("thoughtsTokenCount")];
                let output = output.into_iter().flatten().reduce(u64::saturating_add);
                heard.set(of("promptTokenCount"), output);
            }
            Protocol::Ollama => heard.note(frame, "/prompt_eval_count", "/eval_count"),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        // Every holder leaves it whole.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn note(&mut self, frame: &Value, input: &str, output: &str) {
        let of = |pointer: &str| frame.pointer(pointer).and_then(Value::as_u64);
        self.set(of(input), of(output));
    }

    /// Figures are those of the whole stream so far: the last one counts.
    fn set(&mut self, input: Option<u64>, output: Option<u64>) {
        let input = input.unwrap_or(self.spent.input);
        let output = output.unwrap_or(self.spent.output);
        self.spent = Spent::new(input, output, input.saturating_add(output));
    }
}

impl ChatFrameSink for Watch {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        if let Some(frame) = frame.json() {
            self.hear(&frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn heard(protocol: Protocol, frames: &[Value]) -> (Spent, bool) {
        let watch = Watch::new(protocol);
        for frame in frames {
            watch.hear(frame);
        }
        (watch.spent(), watch.is_finished())
    }

    #[test]
    fn the_last_figures_of_each_protocol_count() {
        for (protocol, frames, spent) in [
            (
                Protocol::OpenAi,
                vec![
                    json!({"choices": [{"delta": {"content": "a"}, "finish_reason": null}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}),
                    json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
                ],
                Spent::new(7, 3, 10),
            ),
            (
                Protocol::Anthropic,
                vec![
                    json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1}}}),
                    json!({"type": "message_delta", "usage": {"output_tokens": 9}}),
                ],
                Spent::new(25, 9, 34),
            ),
            (
                Protocol::Gemini,
                vec![
                    json!({"usageMetadata": {"promptTokenCount": 4}}),
                    json!({"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 6}}),
                ],
                Spent::new(4, 8, 12),
            ),
            (
                Protocol::Ollama,
                vec![
                    json!({"message": {}}),
                    json!({"done": true, "prompt_eval_count": 2, "eval_count": 3}),
                ],
                Spent::new(2, 3, 5),
            ),
        ] {
            assert_eq!(heard(protocol, &frames).0, spent, "{protocol:?}");
        }
    }

    #[test]
    fn a_finish_reason_finishes_and_null_does_not() {
        let reason = |reason: Value| json!({"choices": [{"delta": {}, "finish_reason": reason}]});
        assert!(heard(Protocol::OpenAi, &[reason(json!("stop")), reason(Value::Null)]).1);
        assert!(!heard(Protocol::OpenAi, &[reason(Value::Null), json!({"choices": []})]).1);
    }
}
