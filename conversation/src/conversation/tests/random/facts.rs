//! Facts that summaries retain or lose, checked against a simple reference. Texts are generated from words with predefined facts.

use std::collections::BTreeSet;
use std::sync::Arc;

use pirn_definition::message::{Message, Role};
use proptest::prelude::*;
use serde_json::json;

use crate::conversation::compression::{
    Compression, CompressionContext, CompressionResult, FactKind, compress, facts_of, finish_summary,
    finish_with_checklist, judge,
};
use crate::conversation::tests::notation::message;
use crate::conversation::{Estimator, message_cost, tool_blocks};

/// Words with their facts in normalized form. A negation has two words.
const WORDS: &[(&str, &[(FactKind, &str)])] = &[
    ("the", &[]),
    ("parcel", &[]),
    ("went", &[]),
    ("42", &[(FactKind::Number, "42")]),
    ("1,200", &[(FactKind::Number, "1200")]),
    ("48.30", &[(FactKind::Number, "48.3")]),
    ("AX-7741", &[(FactKind::Id, "ax-7741")]),
    ("order_id", &[(FactKind::Id, "order_id")]),
    ("Petra", &[(FactKind::Name, "petra")]),
    ("DHL", &[(FactKind::Name, "dhl")]),
    ("2026-01-02", &[(FactKind::Date, "2026-01-02")]),
    ("14:30", &[(FactKind::Date, "14:30")]),
    ("not refundable", &[(FactKind::Negation, "refundable")]),
    ("never the late", &[(FactKind::Negation, "late")]),
];

type Known = BTreeSet<(FactKind, String)>;

/// Returns a sentence with its facts. Its first word is not a name.
fn sentence(numbers: &[usize]) -> (String, Known) {
    let words = numbers.iter().map(|number| WORDS[number % WORDS.len()]);
    let facts = words
        .clone()
        .flat_map(|(_, facts)| facts.iter().map(|(kind, text)| (*kind, (*text).to_owned())));
    let text: Vec<&str> = std::iter::once("so").chain(words.map(|(word, _)| word)).collect();
    (format!("{}.", text.join(" ")), facts.collect())
}

fn sentences() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..WORDS.len(), 0..9)
}

fn floored(messages: &[Message], floor: f64, keep: u64) -> CompressionContext {
    CompressionContext {
        messages: messages.iter().cloned().map(Arc::new).collect(),
        compression_config: Some(
            serde_json::from_value(
                json!({"strategy": "summarize", "parameters": {"keepFacts": floor, "keepRecent": keep}}),
            )
            .expect("config"),
        ),
        ..CompressionContext::default()
    }
}

fn summarized(context: &CompressionContext, text: &str) -> CompressionResult {
    match compress(context, &Estimator).expect("good parameters") {
        Compression::Done(result) => *result,
        Compression::Summarize(plan) => finish_summary(&plan, text, &Estimator),
    }
}

/// Generates turns with sentences of facts; some replies call a tool.
fn talks() -> impl Strategy<Value = Vec<(Message, Known)>> {
    prop::collection::vec((sentences(), sentences(), sentences(), any::<bool>()), 1..9).prop_map(|turns| {
        let mut talk = Vec::new();
        let mut say = |message: Message, numbers: &[usize]| {
            let (text, facts) = sentence(numbers);
            talk.push((
                Message {
                    content: text,
                    ..message
                },
                facts,
            ));
        };
        for (asked, found, answered, calls) in turns {
            say(message("u"), &asked);
            if calls {
                say(message("a[1]"), &[]);
                say(message("t:1"), &found);
            }
            say(message("a"), &answered);
        }
        talk
    })
}

proptest! {
    #[test]
    fn the_facts_found_in_a_text_are_the_inserted_facts(numbers in sentences()) {
        let (text, known) = sentence(&numbers);
        let found: Known = facts_of(&text).into_iter().map(|fact| (fact.kind, fact.text)).collect();
        prop_assert_eq!(found, known, "{}", text);
    }

    #[test]
    fn a_fact_is_retained_if_and_only_if_the_summary_contains_it(originals in prop::collection::vec(sentences(), 0..6), summary in sentences()) {
        let texts: Vec<(String, Known)> = originals.iter().map(|numbers| sentence(numbers)).collect();
        let messages: Vec<Message> = texts.iter().map(|(text, _)| Message::new(Role::User, text.as_str())).collect();
        let (said, known) = sentence(&summary);
        for judged in judge(&messages, &said) {
            let fact = (judged.fact.kind, judged.fact.text.clone());
            prop_assert_eq!(judged.kept, known.contains(&fact), "{:?} in {}", fact, said);
            let places: Vec<usize> = (0..texts.len()).filter(|place| texts[*place].1.contains(&fact)).collect();
            prop_assert_eq!(judged.messages, places);
        }
        let all: Known = texts.into_iter().flat_map(|(_, facts)| facts).collect();
        prop_assert_eq!(judge(&messages, &said).len(), all.len());
    }

    /// Compares with a reference that retains whole blocks and single messages, newest first. After each, it recomputes the lost
    /// facts and the size of the result.
    #[test]
    fn messages_with_lost_facts_stay_verbatim_until_the_floor_is_met(
        talk in talks(), summary in sentences(), tenths in 0_u32..11, keep in 0_u64..4,
    ) {
        let floor = f64::from(tenths) / 10.0;
        let (text, said) = sentence(&summary);
        let messages: Vec<Message> = talk.iter().map(|(message, _)| message.clone()).collect();
        let context = floored(&messages, floor, keep);
        let result = summarized(&context, &text);
        let blocks = tool_blocks(&messages);

        // The last `keep` messages are not summarized, nor is the remainder of a block that the cut would split.
        let mut first_kept = messages.len().saturating_sub(keep as usize);
        if let Some(block) = blocks.iter().find(|block| block.contains(&first_kept)) {
            first_kept = block.start;
        }
        let old = &talk[..first_kept];
        let all: Known = old.iter().flat_map(|(_, facts)| facts.clone()).collect();
        let mut kept: Known = all.intersection(&said).cloned().collect();
        let mut stays = vec![false; old.len()];
        let cost = |message: &Message| message_cost(message, &Estimator);
        let summary_cost = cost(&Message::new(Role::User, text.as_str()));
        let is_smaller = |stays: &[bool]| {
            let leaving: Vec<u64> = old.iter().zip(stays).filter(|(_, stays)| !**stays).map(|((one, _), _)| cost(one)).collect();
            leaving.len() > 1 && leaving.iter().sum::<u64>() > summary_cost
        };
        if !is_smaller(&stays) {
            prop_assert_eq!(&result.messages, &context.messages);
            return Ok(());
        }
        let is_met = |kept: &Known| kept.len() as f64 >= floor * all.len() as f64;
        let mut at = old.len();
        while at > 0 && !is_met(&kept) {
            let start = blocks.iter().find(|block| block.contains(&(at - 1))).map_or(at - 1, |block| block.start);
            let facts: Known = old[start..at].iter().flat_map(|(_, facts)| facts.clone()).collect();
            let mut tried = stays.clone();
            tried[start..at].fill(true);
            if !facts.is_subset(&kept) && is_smaller(&tried) {
                stays = tried;
                kept.extend(facts);
            }
            at = start;
        }
        let mut expected: Vec<String> = vec![text.clone()];
        expected.extend(old.iter().zip(&stays).filter(|(_, stays)| **stays).map(|((one, _), _)| one.content.clone()));
        expected.extend(messages[first_kept..].iter().map(|one| one.content.clone()));
        let shown: Vec<String> = result.messages.iter().map(|one| one.content.clone()).collect();
        prop_assert_eq!(shown, expected);
        let stats = result.stats.facts.expect("it was asked for");
        prop_assert_eq!((stats.total, stats.kept), (all.len() as u64, kept.len() as u64));
        prop_assert_eq!(stats.verbatim, stays.iter().filter(|stays| **stays).count() as u64);
        prop_assert_eq!(stats.is_met, is_met(&kept));

        // A second compression changes nothing.
        let again = summarized(&CompressionContext { messages: result.messages.clone(), ..context }, "something else");
        prop_assert_eq!(&again.messages, &result.messages);
    }

    /// The oracle judges all hidden messages at once.
    #[test]
    fn figures_of_facts_compare_with_the_original_messages_of_all_rounds(
        rounds in prop::collection::vec((talks(), sentences()), 1..5), keep in 0_u64..3,
    ) {
        let mut visible: Vec<Message> = Vec::new();
        let mut originals: Vec<Message> = Vec::new();
        for (talk, summary) in rounds {
            for (message, _) in talk {
                let message = Message { id: Some(format!("m{}", originals.len())), ..message };
                originals.push(message.clone());
                visible.push(message);
            }
            let context = floored(&visible, 0.0, keep);
            let Compression::Summarize(plan) = compress(&context, &Estimator).expect("good parameters") else { continue };
            let result = finish_with_checklist(&plan, Some(&sentence(&summary).0), &Estimator).result;
            let Some(stats) = result.stats.facts else { continue };
            visible = result.messages.iter().map(|one| Message::clone(one)).collect();
            let replaced: Vec<&Message> = originals.iter().filter(|one| !visible.contains(one)).collect();
            let judged = judge(&replaced, &visible[0].content);
            let count = |kind: Option<FactKind>, kept: bool| {
                let of_kind = judged.iter().filter(|one| kind.is_none_or(|kind| one.fact.kind == kind));
                of_kind.filter(|one| one.kept || !kept).count() as u64
            };
            prop_assert_eq!((stats.total, stats.kept), (count(None, false), count(None, true)));
            let kinds = stats.kinds;
            let by_kind = [kinds.number, kinds.date, kinds.id, kinds.name, kinds.negation];
            for (kind, of) in FactKind::ALL.into_iter().zip(by_kind) {
                prop_assert_eq!((of.total, of.kept), (count(Some(kind), false), count(Some(kind), true)));
            }
        }
    }
}
