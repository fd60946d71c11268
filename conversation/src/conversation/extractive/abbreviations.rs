//! Full stops that do not end a sentence, by the words of `abbreviations.txt`.

use std::collections::HashSet;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use super::is_unspaced;

/// Maximum length in characters of a word that is an abbreviation if a letter in lower case or a digit follows.
const MOST_SHORT: usize = 4;
/// Maximum length of a listed word in bytes.
const MOST_LISTED: usize = 16;

/// Listed words.
#[derive(Default)]
struct Words {
    titles: HashSet<&'static str, FixedState>,
    months: HashSet<&'static str, FixedState>,
}

fn listed() -> &'static Words {
    static WORDS: LazyLock<Words> = LazyLock::new(|| {
        let mut all = Words::default();
        for line in include_str!("abbreviations.txt").lines() {
            if let Some((head, words)) = line.split_once(':').filter(|_| !line.starts_with('#')) {
                let is_title = head.starts_with("title ");
                let of_kind = if is_title { &mut all.titles } else { &mut all.months };
                of_kind.extend(words.split('|').map(str::trim));
            }
        }
        all
    });
    &WORDS
}

/// Returns whether a full stop between `before` and `behind` does not end a sentence, as in `J. Smith`, `e.g. this`, `1. First`,
/// `No. 5`, `Dr. Smith`.
pub(in super::super) fn goes_on(before: &str, behind: &str) -> bool {
    let after = behind.trim_start_matches([' ', '\t', '\u{a0}']);
    let start = before.trim_end_matches(char::is_alphanumeric).len();
    let word = &before[start..];
    let Some(last) = word.chars().next_back() else {
        return false;
    };
    let is_letter = last.is_alphabetic() && !is_unspaced(last);
    let is_number = word.bytes().all(|c| c.is_ascii_digit());
    let is_short = word.chars().nth(MOST_SHORT).is_none();
    // An id in lower case starts a sentence too: `He was charged once. pay_9 was voided.`
    let next = after.split_whitespace().next().unwrap_or_default();
    let is_id = next.contains(|c: char| c == '_' || c.is_ascii_digit());
    let continues = next.starts_with(char::is_lowercase) && !is_id;
    // A single letter is an initial or part of an abbreviation. In Chinese it is a word.
    is_letter && word.chars().nth(1).is_none()
        || is_number && before[..start].trim().is_empty()
        || is_letter && is_short && (continues || after.starts_with(|c: char| c.is_ascii_digit()))
        || is_letter && is_listed(&listed().titles, word)
        || is_number && (continues || is_listed(&listed().months, first_word(after)))
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

fn is_listed(words: &HashSet<&'static str, FixedState>, word: &str) -> bool {
    // Before the copy in lower case, which costs a scan of a long word.
    word.len() <= MOST_LISTED && words.contains(word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_line_of_the_file_of_abbreviations_is_read_and_in_lower_case() {
        for line in include_str!("abbreviations.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (head, words) = line.split_once(':').unwrap_or_else(|| panic!("no colon: {line}"));
            let (kind, language) = head.split_once(' ').unwrap_or_else(|| panic!("no language: {line}"));
            assert!(matches!(kind, "title" | "month") && language.len() == 2, "{line}");
            for word in words.split('|').map(str::trim) {
                assert!(
                    !word.is_empty() && word.len() <= super::MOST_LISTED && word.to_lowercase() == word,
                    "{word:?} in {line}"
                );
            }
        }
    }
}
