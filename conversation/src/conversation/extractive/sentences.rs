//! Splits texts into sentences.

use super::abbreviations::goes_on;
use super::is_unspaced;

/// Maximum number of sentences; longer texts are represented by a first quarter and a last three quarters of this number.
pub(super) const MOST_SENTENCES: usize = 1000;

/// A sentence, and the text to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sentence<'t> {
    pub(super) text: &'t str,
    pub(super) of: usize,
}

/// Returns the sentences of a text in order, without the spaces around them.
pub(in super::super) fn each_sentence(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    // Ends, because `sentence_end` is positive for a text that is not empty.
    std::iter::from_fn(move || {
        let (sentence, after) = (!rest.is_empty()).then(|| rest.split_at(sentence_end(rest)))?;
        rest = after;
        Some(sentence.trim())
    })
}

/// Returns the sentences of all texts in order, at most [`MOST_SENTENCES`]; paragraphs are separate texts. Data that is not prose
/// (records, logs, calls) is omitted, unless the texts contain nothing but data.
pub(super) fn sentences<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<Sentence<'t>> {
    let mut all = Vec::new();
    // A summary starts a new line for each paragraph, not only for each text.
    let paragraphs = texts.into_iter().flat_map(|text| text.split("\n\n"));
    for (of, text) in paragraphs.enumerate() {
        // Lines of marks only have no words to compare.
        let spoken = each_sentence(text).filter(|sentence| sentence.contains(char::is_alphanumeric));
        all.extend(spoken.map(|text| Sentence { text, of }));
    }
    // Data alone is still summarized: an empty summary would be of no use.
    if all.iter().any(|sentence| !is_data(sentence.text)) {
        all.retain(|sentence| !is_data(sentence.text));
    }
    let head = MOST_SENTENCES / 4;
    if all.len() > MOST_SENTENCES {
        // The beginning has the topic, the end the latest state: drop the middle.
        all.drain(head..all.len() - (MOST_SENTENCES - head));
    }
    all
}

/// Returns whether the text contains JSON, or more than a third of it is neither letters nor spaces. Very short texts count as
/// prose.
pub(in super::super) fn is_data(text: &str) -> bool {
    // Before the count: JSON with long strings has enough letters to pass as prose.
    if text.contains("{\"") {
        return true;
    }
    let (mut all, mut letters) = (0_usize, 0_usize);
    for c in text.chars() {
        all += 1;
        letters += usize::from(c.is_alphabetic() || c == ' ');
    }
    all > 24 && letters * 3 < all * 2
}

/// Returns the end of the first sentence of `text`: after its mark and the closing quotes that follow. The result is positive if
/// `text` is not empty.
pub(in super::super) fn sentence_end(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        // In scripts without spaces the mark alone ends the sentence.
        let ends = match c {
            '\n' | '。' | '！' | '？' | '；' | '…' => true,
            '!' | '?' => next.is_none_or(is_after_end),
            // A full stop inside of a number or a name has no space after it.
            '.' => next.is_none_or(is_after_end) && !goes_on(&text[..at], &text[at + 1..]),
            _ => false,
        };
        if ends {
            // A closing quote belongs to the sentence that it ends.
            let closing = |c: char| {
                matches!(
                    c,
                    '"' | '\'' | ')' | ']' | '”' | '’' | '」' | '』' | '）' | '。' | '！' | '？' | '…'
                )
            };
            let behind = &text[at + c.len_utf8()..];
            return text.len() - behind.trim_start_matches(closing).len();
        }
    }
    text.len()
}

fn is_after_end(c: char) -> bool {
    c.is_whitespace() || is_unspaced(c) || matches!(c, '"' | '\'' | ')' | ']' | '”' | '’')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        sentences([text]).into_iter().map(|sentence| sentence.text).collect()
    }

    #[test]
    fn records_logs_and_calls_are_not_sentences() {
        let said = "The refund RF-88213 over 88.90 EUR is queued.";
        for data in [
            r#"tool get_order: {"order":"HB-20233","lines":[{"sku":"WAF-HRT-05","quantity":1}]}"#,
            "2026-02-24T12:00:07Z ERROR queue=inspect id=3071",
            r#"calls stock {"sku":"60.114"}"#,
        ] {
            assert_eq!(cut(&format!("{data}\n{said}")), [said], "{data}");
            assert_eq!(cut(data), [data], "where there is nothing else");
        }
        assert_eq!(cut("新机会在五个工作日内寄出。"), ["新机会在五个工作日内寄出。"]);
    }

    #[test]
    fn a_sentence_ends_at_its_punctuation_mark() {
        assert_eq!(
            cut("One is here. Two, too! Three?\nFour"),
            ["One is here.", "Two, too!", "Three?", "Four"]
        );
        assert_eq!(
            cut("今天下雨。我们不出门！“为什么？”他问"),
            ["今天下雨。", "我们不出门！", "“为什么？”", "他问"]
        );
        assert_eq!(
            cut("He said \"go on.\" Then he left."),
            ["He said \"go on.\"", "Then he left."]
        );
    }

    #[test]
    fn full_stops_in_names_and_numbers_do_not_end_a_sentence() {
        assert_eq!(cut("1. It was (so) in 2020. Then"), ["1. It was (so) in 2020.", "Then"]);
        assert_eq!(cut("First (so). Second"), ["First (so).", "Second"]);
        assert_eq!(
            cut("It costs 3.50 e.g. at J. Smith in v1.2 of a.b."),
            ["It costs 3.50 e.g. at J. Smith in v1.2 of a.b."]
        );
    }

    #[test]
    fn an_abbreviation_does_not_end_a_sentence() {
        for text in [
            "Never reveal key no. 1005 to anybody.",
            "Never pay Dr. Smith before May.",
            "Niemals Kunde Nr. 17 anrufen.",
            "Wait approx. 30 days or longer.",
            "Never tell Acme Inc. about it.",
            "Do not write to St. Mary's on Monday.",
            "Niemals am 24. Dezember oder am 3. und 4. Januar liefern.",
            "Nunca llames a la Sra. Gómez por la tarde.",
        ] {
            assert_eq!(cut(&format!("{text} That is all.")), [text, "That is all."]);
        }
        assert_eq!(
            cut("He was charged once. pay_9c4 was voided."),
            ["He was charged once.", "pay_9c4 was voided."]
        );
        assert_eq!(
            cut("He said no. That is it. It is 5."),
            ["He said no.", "That is it.", "It is 5."]
        );
    }

    #[test]
    fn punctuation_alone_is_not_a_sentence() {
        assert!(cut(" \n--- !!! \n 。。。").is_empty());
    }

    #[test]
    fn at_most_the_limit_of_sentences_is_read() {
        let long = "word here.\n".repeat(10 * MOST_SENTENCES);
        assert_eq!(sentences([long.as_str()]).len(), MOST_SENTENCES);
    }
}
