//! A reply as received so far in any protocol, and its final form.
//!
//! 1. Token counts are those of the whole reply so far: the largest report counts.
//! 2. A reply is complete when the provider has sent a finish reason. One without it is truncated and is an error.
//! 3. A reply that finishes for tool calls and contains none is malformed.
//! 4. A reply that was cut, filtered or refused has no tool calls: the last one may lack arguments, and a tool would be called with
//!    the remaining ones.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use pirn_conversation::conversation::TokenUsage;
use pirn_conversation::model_call::{CacheUse, FailureKind, FinishReason, ModelFailure};
use pirn_core::thread::ModelReply;
use pirn_definition::message::ToolCall;
use pirn_definition::value::memory;
use serde_json::{Value, json};

use super::failure::{Failure, of_body};
use super::key::Key;
use crate::formats::gemini::OWN_ID;
use crate::formats::openai::parsed;
use crate::formats::reasoning::{self, Recalled, Thought};

/// Maximum size of a reply in bytes, so that an endless reply does not fill the memory. Arguments that arrive as JSON count with the
/// memory of their values.
const LONGEST: usize = 32 << 20;

/// Bytes charged for each call and each piece of reasoning in addition to its text, so that empty ones are bounded too.
const EACH: usize = 256;

/// The reply, as far as it has been received.
#[derive(Default)]
pub(super) struct ReplyBuilder {
    text: String,
    /// Length of the text already forwarded.
    handed_on: usize,
    reasoning: Vec<Reasoned>,
    /// Indexes into `reasoning` by place and, below, into `calls` by number, so that a reply with many of them is not searched for
    /// each piece.
    reasoned: BTreeMap<u64, usize>,
    calls: Vec<Call>,
    numbered: BTreeMap<u64, usize>,
    reported: RawUsage,
    finish: Option<FinishReason>,
    is_over: bool,
    size: usize,
}

/// Token counts as protocols report them: cached tokens are part of the input, reasoning tokens part of the output.
#[derive(Clone, Copy, Default)]
pub(super) struct RawUsage {
    pub(super) input: u64,
    pub(super) cached_read: u64,
    pub(super) cached_write: u64,
    /// True if the reply contains a figure of cached tokens.
    pub(super) reports_cache: bool,
    pub(super) output: u64,
    pub(super) reasoning: u64,
    /// 0 if the protocol has none.
    pub(super) total: u64,
}

impl RawUsage {
    /// Returns the maximum of each count.
    fn or_more(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached_read: self.cached_read.max(other.cached_read),
            cached_write: self.cached_write.max(other.cached_write),
            reports_cache: self.reports_cache || other.reports_cache,
            output: self.output.max(other.output),
            reasoning: self.reasoning.max(other.reasoning),
            total: self.total.max(other.total),
        }
    }

    /// Returns the use of the provider's cache.
    fn cache(self) -> CacheUse {
        let spent = self.into_usage();
        CacheUse {
            sent: spent.sent(),
            read: self.reports_cache.then_some(spent.cached_read),
            premium: None,
        }
    }

    /// Returns the counts as disjoint kinds. Gateways that report a part greater than the whole mean it in addition to the whole.
    fn into_usage(self) -> TokenUsage {
        let without = |whole: u64, part: u64| whole.checked_sub(part).unwrap_or(whole);
        let spent = TokenUsage {
            input: without(self.input, self.cached_read.saturating_add(self.cached_write)),
            cached_read: self.cached_read,
            cached_write: self.cached_write,
            output: without(self.output, self.reasoning),
            reasoning: self.reasoning,
            ..TokenUsage::default()
        };
        TokenUsage {
            total: self.total.max(spent.sent().saturating_add(spent.received())),
            ..spent
        }
    }
}

/// A piece of reasoning.
struct Reasoned {
    text: String,
    signature: String,
    /// The block in the provider's format.
    block: Option<Value>,
}

/// A tool call as received so far.
#[derive(Default)]
struct Call {
    id: String,
    name: String,
    written: String,
    /// Arguments received as JSON.
    arguments: Option<Value>,
    signature: Option<String>,
}

/// A tool call or a piece of one.
#[derive(Default)]
pub(super) struct CallPiece<'a> {
    /// The call's number, if the protocol has one.
    pub(super) place: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    /// Additional text of the arguments.
    pub(super) written: &'a str,
    /// Complete arguments.
    pub(super) arguments: Option<&'a Value>,
    pub(super) signature: Option<&'a str>,
    /// True for a complete call, which continues no other.
    pub(super) is_whole: bool,
}

impl ReplyBuilder {
    /// Adds text.
    pub(super) fn text(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.size += piece.len();
    }

    /// Returns the text received since the last call, without the key. A possible beginning of the key is held back until more text
    /// arrives or the reply ends.
    pub(super) fn take_new_text(&mut self, key: &Key, is_end: bool) -> Option<&str> {
        let from = self.handed_on;
        key.hide_from(&mut self.text, from);
        let begun = if is_end {
            0
        } else {
            key.begun_in(self.text.get(from..)?)
        };
        self.handed_on = self.text.len() - begun;
        self.text.get(from..self.handed_on).filter(|new| !new.is_empty())
    }

    /// Adds reasoning at `place`.
    pub(super) fn reasoning(&mut self, place: u64, text: &str, signature: &str) {
        if text.is_empty() && signature.is_empty() {
            return;
        }
        self.size += text.len() + signature.len();
        let known = self.reasoned.get(&place).and_then(|at| self.reasoning.get_mut(*at));
        if let Some(known) = known {
            known.text.push_str(text);
            known.signature.push_str(signature);
            return;
        }
        self.size += EACH;
        self.reasoned.insert(place, self.reasoning.len());
        self.reasoning.push(Reasoned {
            text: text.to_owned(),
            signature: signature.to_owned(),
            block: None,
        });
    }

    /// Adds reasoning that is sent back unchanged.
    pub(super) fn reasoning_block(&mut self, block: &Value) {
        self.size += block.to_string().len() + EACH;
        self.reasoning.push(Reasoned {
            text: String::new(),
            signature: String::new(),
            block: Some(block.clone()),
        });
    }

    /// Adds an element of a stream's `reasoning_details`. Consecutive elements of one type and index are pieces of one.
    pub(super) fn reasoning_detail(&mut self, piece: &Value) {
        let last = self.reasoning.last_mut().and_then(|last| last.block.as_mut());
        let is_same = |known: &&mut Value| {
            let in_pieces = piece.get("index").is_some() && piece["type"] != "reasoning.encrypted";
            in_pieces && ["type", "index"].iter().all(|name| known.get(name) == piece.get(name))
        };
        let Some((known, fields)) = last.filter(is_same).zip(piece.as_object()) else {
            return self.reasoning_block(piece);
        };
        self.size += piece.to_string().len();
        for (name, value) in fields {
            match (&mut known[name], value) {
                (_, Value::Null) => {}
                (Value::String(known), Value::String(more)) if name == "text" || name == "summary" => {
                    known.push_str(more);
                }
                (known, value) => *known = value.clone(),
            }
        }
    }

    /// Adds a call or a piece of one. A piece with a number continues the call with that number; one without continues the last call,
    /// unless it starts another: with a different id, or with a name and no id.
    pub(super) fn call(&mut self, piece: &CallPiece<'_>) {
        self.size += piece.written.len() + piece.name.len() + piece.id.len() + piece.signature.map_or(0, str::len);
        self.size += piece.arguments.map_or(0, |arguments| memory(arguments) as usize);
        let known = match piece.place {
            Some(place) => self.numbered.get(&place).and_then(|at| self.calls.get_mut(*at)),
            None => self.calls.last_mut(),
        };
        let goes_on = known.filter(|known| {
            let is_its_id = piece.id.is_empty() || known.id.is_empty() || known.id == piece.id;
            let begins = piece.place.is_none() && piece.id.is_empty() && !piece.name.is_empty();
            is_its_id && !begins && !piece.is_whole
        });
        let call = match goes_on {
            Some(known) => known,
            None if piece.name.is_empty() && piece.id.is_empty() && piece.written.is_empty() => return,
            None => {
                self.size += EACH;
                if let Some(place) = piece.place {
                    self.numbered.insert(place, self.calls.len());
                }
                self.calls.push(Call::default());
                let Some(new) = self.calls.last_mut() else { return };
                new
            }
        };
        for (own, more) in [(&mut call.id, piece.id), (&mut call.name, piece.name)] {
            if own.is_empty() {
                own.push_str(more);
            }
        }
        call.written.push_str(piece.written);
        if let Some(arguments) = piece.arguments {
            call.arguments = Some(arguments.clone());
        }
        if let Some(signature) = piece.signature {
            call.signature = Some(signature.to_owned());
        }
    }

    /// Records token counts reported by the provider.
    pub(super) fn spent(&mut self, reported: RawUsage) {
        self.reported = self.reported.or_more(reported);
    }

    /// Returns the token counts reported so far.
    pub(super) fn reported(&self) -> TokenUsage {
        self.reported.into_usage()
    }

    /// Returns whether a call has this number.
    pub(super) fn has_call(&self, place: u64) -> bool {
        self.numbered.contains_key(&place)
    }

    /// Sets the finish reason. The first one counts, except that some models of Gemini send "stop" with every piece.
    pub(super) fn finished(&mut self, reason: FinishReason) {
        if self.finish.is_none_or(|finish| finish == FinishReason::Stop) {
            self.finish = Some(reason);
        }
    }

    /// Records a refusal: its finish reason on the wire is that of any other reply.
    pub(super) fn refused(&mut self) {
        self.finish = Some(FinishReason::Refusal);
    }

    /// Marks the end of the stream.
    pub(super) fn over(&mut self) {
        self.is_over = true;
    }

    /// Returns whether the stream has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns whether the provider has sent a finish reason.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    pub(super) fn is_too_long(&self) -> Option<Failure> {
        let message = || format!("the reply is longer than {LONGEST} bytes");
        (self.size > LONGEST).then(|| Failure::malformed(message()))
    }

    /// Returns the reply.
    ///
    /// # Errors
    /// Fails if the reply is incomplete or malformed.
    pub(super) fn reply(mut self, provider: &str, model: &str, key: &Key) -> Result<ModelReply, Failure> {
        let Some(finish) = self.finish else {
            let message = "the connection ended before the reply was complete: the provider sent no finish reason";
            return Err(Failure::new(FailureKind::Dropped, message));
        };
        if matches!(
            finish,
            FinishReason::Length | FinishReason::ContentFilter | FinishReason::Refusal
        ) {
            self.calls.clear();
        }
        let unnamed = self.calls.iter().any(|call| call.name.is_empty());
        if finish == FinishReason::Malformed || unnamed {
            return Err(malformed("the model wrote an invalid tool call"));
        }
        if finish == FinishReason::ToolCalls && self.calls.is_empty() {
            return Err(malformed("the finish reason is tool calls, and the reply has none"));
        }
        let signatures: Vec<Option<String>> = self.calls.iter().map(|call| call.signature.clone()).collect();
        let mut tool_calls = told_apart(self.calls.into_iter().map(Call::whole).collect());
        for call in &mut tool_calls {
            key.hide_from(&mut call.id, 0);
            key.hide_from(&mut call.name, 0);
            key.hide_in(&mut call.arguments);
        }
        for piece in &mut self.reasoning {
            key.hide_from(&mut piece.text, 0);
            piece.block.iter_mut().for_each(|block| key.hide_in(block));
        }
        // Providers require the reasoning with the results of tools only.
        let metadata = if tool_calls.is_empty() {
            None
        } else {
            let mut recalled = recalled(self.reasoning);
            for (call, signature) in tool_calls.iter().zip(&signatures) {
                if let Some(signature) = signature {
                    recalled.sign(&call.id, signature);
                }
            }
            reasoning::metadata(provider, Some(model), recalled)
        };
        Ok(ModelReply {
            content: self.text,
            finish_reason: match finish {
                FinishReason::Stop if !tool_calls.is_empty() => FinishReason::ToolCalls,
                other => other,
            },
            tool_calls,
            usage: self.reported.into_usage(),
            metadata,
            cache: Some(Box::new(self.reported.cache())),
        })
    }
}

fn malformed(message: &str) -> Failure {
    Failure::malformed(message).with_finish(FinishReason::Malformed)
}

fn recalled(reasoning: Vec<Reasoned>) -> Recalled {
    let mut recalled = Recalled::default();
    for one in reasoning {
        if let Some(block) = one.block {
            recalled.thoughts.push(Thought::Block(block));
            continue;
        }
        // A signed block may have no text, and its signature is valid for no other text.
        recalled.thoughts.push(Thought::Text(one.text));
        if !one.signature.is_empty() {
            recalled.thoughts.push(Thought::Signature(one.signature));
        }
    }
    recalled
}

impl Call {
    fn whole(self) -> ToolCall {
        ToolCall {
            id: self.id,
            name: self.name,
            arguments: match self.arguments {
                Some(arguments) if self.written.is_empty() => arguments,
                Some(_) | None => parsed(&json!(self.written)),
            },
        }
    }
}

/// Gives every call a distinct id, because results refer to calls only by id. An id for a call without one differs from those of other
/// replies too: a front end has the calls of a whole chat, and finds the call of a result by its id.
fn told_apart(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let mut seen = BTreeSet::new();
    let mut of_reply: Option<u64> = None;
    for (place, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() {
            // The keys of `RandomState` are random. Digits only: see `OWN_ID`.
            let reply = of_reply.get_or_insert_with(|| RandomState::new().hash_one(0));
            call.id = format!("{OWN_ID}{reply}-{}", place + 1);
        }
        while !seen.insert(call.id.clone()) {
            call.id = format!("{}-{}", call.id, place + 1);
        }
    }
    calls
}

/// Returns the error in the `error` field of a frame or a body, if there is one.
pub(super) fn check_error(frame: &Value) -> Result<(), Failure> {
    let is_error = frame.get("object").and_then(Value::as_str) == Some("error");
    match frame.get("error") {
        Some(Value::Null) | None if !is_error => Ok(()),
        Some(_) | None => Err(of_body(frame)),
    }
}

/// Adds usage to a failure: a failed reply may have cost tokens.
pub(super) fn spending(failure: ModelFailure, spent: TokenUsage) -> ModelFailure {
    ModelFailure { spent, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_call_gets_a_unique_id() {
        let call = |id: &str| ToolCall {
            id: id.to_owned(),
            name: "t".to_owned(),
            arguments: Value::Null,
        };
        let ids = |list: &[&str]| -> Vec<String> {
            let calls = told_apart(list.iter().map(|id| call(id)).collect());
            calls.into_iter().map(|call| call.id).collect()
        };
        assert_eq!(ids(&["a", "b"]), ["a", "b"]);
        let missing: BTreeSet<String> = [ids(&["", ""]), ids(&["", ""])].concat().into_iter().collect();
        assert_eq!(missing.len(), 4, "{missing:?}");
        let same = ids(&["a", "a", "a", "a-2"]);
        assert_eq!(same.iter().collect::<BTreeSet<_>>().len(), 4, "{same:?}");
        assert_eq!(same[0], "a");
    }

    #[test]
    fn call_fragments_are_assigned_to_their_call_with_and_without_an_index() {
        let piece = |place, id, name, written| CallPiece {
            place,
            id,
            name,
            written,
            ..CallPiece::default()
        };
        let told = |pieces: Vec<CallPiece<'_>>| -> Vec<(String, String, Value)> {
            let mut builder = ReplyBuilder::default();
            for piece in &pieces {
                builder.call(piece);
            }
            builder.finished(FinishReason::ToolCalls);
            let calls = builder.reply("p", "m", &Key::none()).expect("whole").tool_calls;
            calls
                .into_iter()
                .map(|call| (call.id, call.name, call.arguments))
                .collect()
        };
        let expected = [
            ("a".to_owned(), "t".to_owned(), json!({"n": 1})),
            ("b".to_owned(), "t".to_owned(), json!({"n": 2})),
        ];
        for pieces in [
            // Numbered, interleaved.
            vec![
                piece(Some(0), "a", "t", "{\"n\""),
                piece(Some(1), "b", "t", "{\"n\""),
                piece(Some(0), "", "", ": 1}"),
                piece(Some(1), "", "", ": 2}"),
            ],
            // Without numbers: complete, and in pieces.
            vec![piece(None, "a", "t", "{\"n\": 1}"), piece(None, "b", "t", "{\"n\": 2}")],
            vec![
                piece(None, "a", "t", "{\"n\""),
                piece(None, "", "", ": 1}"),
                piece(None, "b", "t", "{\"n\": 2}"),
            ],
            // Each piece has an equal number.
            vec![
                piece(Some(0), "a", "t", "{\"n\": 1}"),
                piece(Some(0), "b", "t", "{\"n\": 2}"),
            ],
            // Id and name repeated in every piece.
            vec![
                piece(Some(0), "a", "t", "{\"n\""),
                piece(Some(0), "a", "t", ": 1}"),
                piece(Some(1), "b", "t", "{\"n\": 2}"),
            ],
        ] {
            assert_eq!(told(pieces), expected);
        }
        let unnamed = told(vec![
            piece(None, "", "t", "{\"n\": 1}"),
            piece(None, "", "t", "{\"n\": 2}"),
        ]);
        assert_eq!(unnamed.len(), 2, "{unnamed:?}");
        assert_eq!(told(vec![piece(Some(0), "a", "t", "")])[0].2, json!({}));
    }

    #[test]
    fn whole_calls_with_equal_or_missing_ids_stay_separate() {
        for (given, expected) in [
            (["a", "a"], ["a", "a-2"]),
            (["", "b"], ["call-N-1", "b"]),
            (["a", ""], ["a", "call-N-2"]),
        ] {
            let mut builder = ReplyBuilder::default();
            for (n, id) in given.into_iter().enumerate() {
                builder.call(&CallPiece {
                    id,
                    name: "t",
                    arguments: Some(&json!({ "n": n })),
                    is_whole: true,
                    ..CallPiece::default()
                });
            }
            builder.finished(FinishReason::ToolCalls);
            let calls = builder.reply("p", "m", &Key::none()).expect("whole").tool_calls;
            let ids = calls.iter().map(|call| match call.id.strip_prefix(OWN_ID) {
                Some(own) => format!("{OWN_ID}N{}", own.trim_start_matches(|c: char| c.is_ascii_digit())),
                None => call.id.clone(),
            });
            assert_eq!(ids.collect::<Vec<_>>(), expected);
            assert_eq!(calls[1].arguments, json!({"n": 1}));
        }
    }

    #[test]
    fn a_reply_that_was_cut_has_no_tool_calls() {
        for (finish, count) in [
            (FinishReason::Length, 0),
            (FinishReason::ContentFilter, 0),
            (FinishReason::Refusal, 0),
            (FinishReason::Stop, 2),
            (FinishReason::ToolCalls, 2),
        ] {
            let mut builder = ReplyBuilder::default();
            builder.text("I delete");
            for place in [0, 1] {
                builder.call(&CallPiece {
                    place: Some(place),
                    name: "delete",
                    ..CallPiece::default()
                });
            }
            // The name of the last call may be cut as well.
            if count == 0 {
                builder.call(&CallPiece {
                    place: Some(2),
                    id: "c",
                    ..CallPiece::default()
                });
            }
            builder.finished(finish);
            let reply = builder.reply("p", "m", &Key::none()).expect("a reply");
            assert_eq!(reply.tool_calls.len(), count, "{finish:?}");
            assert_eq!(reply.content, "I delete");
            let expected = if count == 0 { finish } else { FinishReason::ToolCalls };
            assert_eq!(reply.finish_reason, expected);
        }
    }

    #[test]
    fn arguments_that_arrive_as_json_count_towards_the_length_of_a_reply() {
        let arguments = json!({ "text": "x".repeat(1 << 20) });
        let mut builder = ReplyBuilder::default();
        let mut pieces = 0;
        while builder.is_too_long().is_none() {
            pieces += 1;
            assert!(pieces <= 32, "the reply has no limit");
            builder.call(&CallPiece {
                name: "t",
                arguments: Some(&arguments),
                is_whole: true,
                ..CallPiece::default()
            });
        }
        assert_eq!(pieces, 32);
    }

    #[test]
    fn the_largest_reported_usage_counts() {
        let of = |input, output, total| RawUsage {
            input,
            output,
            total,
            ..RawUsage::default()
        };
        let mut builder = ReplyBuilder::default();
        for reported in [of(7, 1, 0), of(0, 0, 0), of(7, 3, 12), of(0, 0, 0)] {
            builder.spent(reported);
        }
        assert_eq!(builder.reported(), TokenUsage::new(7, 3, 12));
    }

    #[test]
    fn tokens_included_in_another_figure_are_subtracted_once() {
        let mut builder = ReplyBuilder::default();
        // The parts may be reported after the total.
        builder.spent(RawUsage {
            input: 100,
            output: 20,
            ..RawUsage::default()
        });
        builder.spent(RawUsage {
            input: 100,
            cached_read: 80,
            cached_write: 5,
            output: 50,
            reasoning: 30,
            ..RawUsage::default()
        });
        let expected = TokenUsage {
            cached_read: 80,
            cached_write: 5,
            reasoning: 30,
            ..TokenUsage::new(15, 20, 150)
        };
        assert_eq!(builder.reported(), expected);
        // Parts greater than the whole are counted in addition to it.
        let mut builder = ReplyBuilder::default();
        builder.spent(RawUsage {
            input: 10,
            cached_read: 90,
            output: 5,
            reasoning: 9,
            ..RawUsage::default()
        });
        let expected = TokenUsage {
            cached_read: 90,
            reasoning: 9,
            ..TokenUsage::new(10, 5, 114)
        };
        assert_eq!(builder.reported(), expected);
    }
}
