//! Large results against simple references: which are stored, shown and found.

use std::collections::BTreeMap;

use pirn_definition::definition::MIN_RESULT_TOKENS;
use pirn_definition::message::{Message, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::compressions::strategies;
use super::histories::histories;
use crate::conversation::compression::CompressionContext;
use crate::conversation::compression::current_turn_start;
use crate::conversation::tests::cases::compression::done;
use crate::conversation::{
    Conversation, CountedMessage, Estimator, LargeResults, MESSAGE_OVERHEAD, ShownResult, Tokenizer, artifact_of,
    read_artifact, recall, shown_result, tool_blocks,
};

/// Generates texts with many lines and multi-byte letters, some with a lower case of another length.
fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-eßİ界🦀., -]{0,60}", 0..60).prop_map(|lines| lines.join("\n"))
}

/// Returns the pages of successive `read_artifact` calls. Each call starts at the offset or line that the previous reply
/// contains.
fn pages(
    arguments: impl Fn(usize) -> Value,
    next: &str,
    results: &LargeResults,
    limit: u64,
) -> Result<Vec<String>, TestCaseError> {
    let (mut pages, mut at) = (Vec::new(), 0);
    loop {
        let page = read_artifact(&arguments(at), results, limit, &Estimator).map_err(TestCaseError::fail)?;
        prop_assert!(Estimator.count(&page) <= limit, "{} tokens", Estimator.count(&page));
        let (head, body) = page.split_once('\n').unwrap_or((&page, ""));
        pages.push(body.to_owned());
        let Some((_, rest)) = head.split_once(next) else {
            return Ok(pages);
        };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let further = digits.parse().expect("a number");
        prop_assert!(further > at, "{head}");
        at = further;
    }
}

fn kept(text: &str) -> (LargeResults, String) {
    let mut results = LargeResults::default();
    let id = results.id_of(text);
    results.keep(&id, text, usize::MAX);
    (results, id.to_string())
}

proptest! {
    #[test]
    fn the_pages_of_a_result_concatenate_to_the_result(text in texts(), limit in MIN_RESULT_TOKENS..400, cut in any::<(prop::sample::Index, prop::sample::Index)>()) {
        let (results, id) = kept(&text);
        let all = pages(|start| json!({"id": id, "range": {"start": start}}), "{\"start\":", &results, limit)?;
        prop_assert_eq!(all.concat(), text.as_str());
        let letters: Vec<char> = text.chars().collect();
        let (one, other) = (cut.0.index(letters.len() + 1), cut.1.index(letters.len() + 1));
        let (start, end) = (one.min(other), one.max(other));
        let part = pages(|at| json!({"id": id, "range": {"start": at.max(start), "end": end}}), "{\"start\":", &results, limit)?;
        prop_assert_eq!(part.concat(), letters[start..end].iter().collect::<String>());
    }

    #[test]
    fn every_matching_line_is_returned_once(text in texts(), limit in MIN_RESULT_TOKENS..400, needle in "[a-eA-E界]{1,2}") {
        let (results, id) = kept(&text);
        let found = pages(|from| json!({"id": id, "grep": needle, "from": from}), "continue with from ", &results, limit)?;
        let numbers: Vec<usize> = found.iter().flat_map(|page| page.lines()).map(|line| {
            let digits: String = line.trim_start_matches("line ").chars().take_while(char::is_ascii_digit).collect();
            digits.parse().expect("a number")
        }).collect();
        let needle = needle.to_lowercase();
        // The lower case of the dotted capital I has two characters, which no needle contains.
        let has = |line: &&str| line.contains(&needle);
        let oracle: Vec<usize> = text.split('\n').zip(1..).filter(|(line, _)| has(line)).map(|(_, number)| number).collect();
        prop_assert_eq!(numbers, oracle);
    }

    #[test]
    fn the_most_recently_stored_results_are_retained(given in prop::collection::vec((0_u8..12, 1_usize..40), 0..60), bound in 40_usize..200) {
        let mut results = LargeResults::default();
        let mut oracle: Vec<String> = Vec::new();
        for (letter, length) in given {
            let text = char::from(b'a' + letter).to_string().repeat(length);
            let id = results.id_of(&text);
            let dropped: Vec<usize> = results.keep(&id, &text, bound).iter().map(|dropped| dropped.bytes).collect();
            oracle.retain(|known| *known != text);
            oracle.push(text);
            let mut gone = Vec::new();
            while oracle.iter().map(String::len).sum::<usize>() > bound {
                gone.push(oracle.remove(0).len());
            }
            prop_assert_eq!(dropped, gone);
            let now: Vec<&str> = results.ids().map(|id| &**results.get(id).expect("kept")).collect();
            prop_assert_eq!(now, oracle.iter().rev().map(String::as_str).collect::<Vec<_>>());
            let again: LargeResults = serde_json::from_value(json!(results)).expect("as it was written");
            prop_assert_eq!(&again, &results);
        }
    }

    #[test]
    fn a_large_result_is_shown_as_a_preview_and_readable_by_its_id(text in texts(), limit in MIN_RESULT_TOKENS..260) {
        let mut results = LargeResults::default();
        let message = Message::tool_result("call", text.as_str());
        let tokens = Estimator.count(&text);
        match shown_result(message.clone(), (limit, usize::MAX), &mut results, &Estimator) {
            ShownResult::Whole(counted) => {
                prop_assert!(tokens <= limit);
                prop_assert_eq!(&*counted.message, &message);
                prop_assert_eq!(results, LargeResults::default());
            }
            ShownResult::Preview { counted, id, tokens: said, .. } => {
                prop_assert!(tokens > limit && counted.tokens <= limit + MESSAGE_OVERHEAD);
                prop_assert_eq!(said, tokens);
                prop_assert_eq!(artifact_of(&counted.message), Some(&*id));
                prop_assert!(counted.message.content.contains(&*id));
                prop_assert_eq!((counted.message.role, counted.message.tool_call_id.as_deref()), (Role::Tool, Some("call")));
                prop_assert_eq!(results.get(&id).map(|kept| &**kept), Some(text.as_str()));
            }
        }
    }

    /// Query words are single letters, so that the reference need not find word boundaries.
    #[test]
    fn archived_messages_are_found_by_most_words_then_the_latest(messages in histories(), keep in 0_u64..6, query in "[a-h] [a-h] [a-h]") {
        let mut conversation = Conversation::from_messages(messages.iter().map(|one| CountedMessage::new(one.clone(), &Estimator)));
        conversation.start_new_batch(messages.len().saturating_sub(keep as usize)).expect("in the history");
        let said = |message: &Message| (message.role, message.content.clone(), message.tool_calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>(), message.tool_call_id.clone());
        let (archived, visible) = messages.split_at(messages.len().saturating_sub(keep as usize));
        let words: std::collections::BTreeSet<&str> = query.split(' ').collect();
        let mut oracle: Vec<(usize, usize)> = Vec::new();
        for (index, message) in archived.iter().enumerate() {
            let is_known = archived[..index].iter().chain(visible).any(|known| {
                said(known) == said(message) && (visible.iter().any(|one| said(one) == said(message)) || !known.sub_agent_internal)
            });
            let calls: Vec<String> = message.tool_calls.iter().map(|call| format!("calls {} {}", call.name, call.arguments)).collect();
            let text = format!("{} {}", message.content, calls.join(" ")).to_lowercase();
            let count = words.iter().filter(|word| text.contains(**word)).count();
            if count > 0 && !is_known && !message.sub_agent_internal {
                oracle.push((count, index));
            }
        }
        oracle.sort_by_key(|(count, index)| (std::cmp::Reverse(*count), std::cmp::Reverse(*index)));
        let mut found = Vec::new();
        loop {
            let answer = recall(&json!({"query": query, "from": found.len()}), &conversation, MIN_RESULT_TOKENS, &Estimator);
            let answer = answer.map_err(TestCaseError::fail)?;
            prop_assert!(Estimator.count(&answer) <= MIN_RESULT_TOKENS);
            let lines = answer.lines().filter_map(|line| line.strip_prefix("message "));
            found.extend(lines.map(|line| line.split(',').next().and_then(|digits| digits.parse::<usize>().ok()).expect("a number")));
            if !answer.contains("continue with from") {
                break;
            }
        }
        prop_assert_eq!(found, oracle.into_iter().map(|(_, index)| index).collect::<Vec<_>>());
    }

    #[test]
    fn every_large_result_remains_readable_after_compressions(
        messages in histories(),
        long in prop::collection::vec(any::<bool>(), 100),
        configs in prop::collection::vec(strategies(), 1..5),
    ) {
        let mut results = LargeResults::default();
        let mut whole: BTreeMap<String, String> = BTreeMap::new();
        let mut conversation = Conversation::new();
        for (number, (message, long)) in messages.into_iter().zip(long).enumerate() {
            let is_long = long && message.role == Role::Tool;
            let content = if is_long { format!("record {number}, ").repeat(200) } else { message.content.clone() };
            let message = Message { content, ..message };
            let counted = match shown_result(message, (MIN_RESULT_TOKENS, usize::MAX), &mut results, &Estimator) {
                ShownResult::Whole(counted) => counted,
                ShownResult::Preview { counted, id, .. } => {
                    whole.insert(id.to_string(), format!("record {number}, ").repeat(200));
                    counted
                }
            };
            conversation.append(counted);
        }
        for config in configs {
            let context = CompressionContext {
                messages: conversation.visible().messages(),
                compression_config: Some(serde_json::from_value(config).expect("config")),
                ..CompressionContext::default()
            };
            let result = done(&context);
            let before: Vec<Message> = context.messages.iter().map(|one| Message::clone(one)).collect();
            let after: Vec<Message> = result.messages.iter().map(|one| Message::clone(one)).collect();
            // A preview is removed with its call or not at all.
            for block in tool_blocks(&before) {
                let calls = |messages: &[Message]| messages.iter().filter(|one| one.tool_call_id.is_some() || one.asks_for_tools()).count();
                let ids: Vec<_> = before[block.clone()].iter().map(|one| (one.role, one.id.clone(), one.tool_call_id.clone())).collect();
                let there = after.iter().filter(|one| ids.contains(&(one.role, one.id.clone(), one.tool_call_id.clone()))).count();
                prop_assert!(calls(&before[block]) == 0 || there == 0 || there >= ids.len(), "{:?}", ids);
            }
            // Previews of the current turn are unchanged.
            let turn = &before[current_turn_start(&before)..];
            prop_assert!(turn.iter().all(|one| after.contains(one)));
            // A note that replaces a preview contains the id of the stored result.
            for note in after.iter().filter(|one| artifact_of(one).is_some()) {
                prop_assert!(artifact_of(note).is_some_and(|id| note.content.contains(id)), "{:?}", note);
            }
            let shown = result.messages.iter().map(|one| CountedMessage::new(std::sync::Arc::clone(one), &Estimator));
            conversation.replace_visible(conversation.basis(), shown).expect("nothing changed since");
        }
        for (id, text) in &whole {
            prop_assert_eq!(results.get(id).map(|kept| &**kept), Some(text.as_str()));
            let is_shown = conversation.visible().iter().any(|counted| counted.message.content.contains(id.as_str()));
            let is_archived = conversation.archived().any(|(_, counted)| counted.message.content.contains(id.as_str()));
            prop_assert!(is_shown || is_archived);
            if !is_shown {
                let is_internal = conversation.archived().any(|(_, one)| one.message.content.contains(id.as_str()) && one.message.sub_agent_internal);
                let found = recall(&json!({"query": id}), &conversation, 2_000, &Estimator).map_err(TestCaseError::fail)?;
                prop_assert!(is_internal || found.contains(id.as_str()), "{}", found);
            }
        }
    }
}
