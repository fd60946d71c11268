//! Words of a text, from which facts are made.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use foldhash::fast::FixedState;

use super::FactKind;

/// Words of `words.txt`, which lists them by language.
static LISTED: LazyLock<Listed> = LazyLock::new(|| Listed::read(include_str!("words.txt")));

struct Listed {
    negating: HashSet<&'static str, FixedState>,
    /// Characters that negate the next one. Their scripts have no spaces, so that other characters are not words.
    negating_signs: Vec<char>,
    /// Words without content: a negation before one refers to the next word.
    small: HashSet<&'static str, FixedState>,
}

impl Listed {
    fn read(text: &'static str) -> Self {
        let of = |kind: &str| -> HashSet<&'static str, FixedState> {
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            let lines = lines.filter(|(head, _)| head.split(' ').next() == Some(kind));
            lines.flat_map(|(_, words)| words.split('|').map(str::trim)).collect()
        };
        Self {
            negating: of("negation"),
            negating_signs: of("sign").iter().flat_map(|sign| sign.chars()).collect(),
            small: of("small"),
        }
    }
}

/// Characters allowed inside a word.
const WITHIN: &[char] = &['-', '_', '.', ',', ':', '/', '@', '\'', '’'];

/// Signs of a negative number.
const MINUS: [char; 2] = ['-', '−'];

/// Characters that end a sentence.
const ENDS: &[char] = &['.', '!', '?', ':', ';', '\n', '。', '！', '？', '"', '“', '(', '[', '{'];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Word<'a> {
    pub(in super::super) text: &'a str,
    /// Byte offset in the text.
    pub(in super::super) at: usize,
    pub(super) begins_sentence: bool,
}

/// Splits a text into words: letters and digits, and allowed characters between two of them.
pub(in super::super) fn words(text: &str) -> Vec<Word<'_>> {
    let is_of_word = |letter: char| letter.is_alphanumeric() && !is_sign(letter);
    // Returns the end of the word that has a letter before `end`.
    let end_of_word = |mut end: usize| {
        let mut rest = text[end..].chars();
        while let Some(letter) = rest.next() {
            // A full stop or comma at the end of a word belongs to the sentence.
            let is_within = || WITHIN.contains(&letter) && rest.clone().next().is_some_and(is_of_word);
            if !is_of_word(letter) && !is_within() {
                break;
            }
            end += letter.len_utf8();
        }
        end
    };
    let mut words = Vec::new();
    let (mut at, mut begins_sentence, mut after_negation) = (0, true, None);
    while let Some(letter) = text[at..].chars().next() {
        let mut from = at;
        at += letter.len_utf8();
        if is_sign(letter) {
            // A character is a word if it negates, or follows one that negates it.
            let is_negation = LISTED.negating_signs.contains(&letter);
            // These scripts do not separate words, so that other characters would make one huge word.
            if !is_negation && after_negation != Some(from) {
                continue;
            }
            after_negation = is_negation.then_some(at);
        } else if is_of_word(letter) {
            at = end_of_word(at);
            if is_number(&text[from..at]) {
                from -= sign_at_end(&text[..from]);
            }
        } else {
            // The mark is remembered until the next word, because a space may follow it.
            begins_sentence |= ENDS.contains(&letter);
            continue;
        }
        words.push(Word {
            text: &text[from..at],
            at: from,
            begins_sentence,
        });
        begins_sentence = false;
    }
    words
}

/// Returns the length of a minus sign at the end of `before`, or 0. A hyphen after a letter, a digit or another hyphen is no sign.
fn sign_at_end(before: &str) -> usize {
    let mut letters = before.chars().rev();
    let is_sign = |letter: &char| MINUS.contains(letter);
    match (letters.next().filter(is_sign), letters.next()) {
        (Some(sign), previous) if !previous.is_some_and(|one| one.is_alphanumeric() || is_sign(&one)) => {
            sign.len_utf8()
        }
        (Some(_) | None, _) => 0,
    }
}

/// Returns true for digits, with points or commas between.
fn is_number(text: &str) -> bool {
    text.chars().all(|c| c.is_numeric() || matches!(c, '.' | ','))
}

/// Returns true for a character of a script without capitals and spaces.
fn is_sign(letter: char) -> bool {
    matches!(u32::from(letter), 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x2_0000..=0x3_ffff)
}

impl Word<'_> {
    /// Returns the kind of fact, or `None` for an ordinary word.
    pub(in super::super) fn kind(&self) -> Option<FactKind> {
        let text = self.text;
        // Most words. The other kinds have a digit, a capital letter or a sign.
        if text.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        let has_digits = text.contains(char::is_numeric);
        let has_letters = text.contains(char::is_alphabetic);
        // Before numbers: `24.12.2026` is also digits with points.
        if has_digits && is_date(text) {
            return Some(FactKind::Date);
        }
        if has_digits && !has_letters && is_number(text.trim_start_matches(MINUS)) {
            return Some(FactKind::Number);
        }
        if has_digits || text.contains(['@', '_']) {
            return Some(FactKind::Id);
        }
        // After the other kinds, which may have capital letters too.
        let mut letters = text.chars();
        let is_capital = letters.next().is_some_and(char::is_uppercase);
        let is_long = letters.next().is_some_and(char::is_alphabetic);
        let all_capitals = !text.contains(char::is_lowercase);
        // One capital letter alone, such as `I` or `A`, is no name.
        (is_capital && is_long && !self.negates() && (all_capitals || !self.begins_sentence)).then_some(FactKind::Name)
    }

    /// Returns the normalized form.
    pub(in super::super) fn compared(&self) -> String {
        let small = lower(self.text);
        match self.kind() {
            Some(FactKind::Number) => return number(&small),
            Some(FactKind::Date) => return padded(&small),
            Some(FactKind::Id | FactKind::Name | FactKind::Negation) | None => {}
        }
        // `Petra's` and `Petra` are one name.
        small.strip_suffix("'s").unwrap_or(&small).to_owned()
    }

    pub(super) fn negates(&self) -> bool {
        let small = lower(self.text);
        // `words` makes such a character a separate word.
        LISTED.negating.contains(&*small) || small.ends_with("n't") || self.text.starts_with(&LISTED.negating_signs[..])
    }

    pub(super) fn is_small(&self) -> bool {
        LISTED.small.contains(&*lower(self.text))
    }
}

/// Returns `text` in lower case, with plain apostrophes.
pub(in super::super) fn lower(text: &str) -> Cow<'_, str> {
    // Most words are in lower case already, and this is called for every word of a conversation.
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(text);
    }
    if text.is_ascii() {
        return Cow::Owned(text.to_ascii_lowercase());
    }
    Cow::Owned(text.to_lowercase().replace('’', "'"))
}

/// Returns true for three groups of digits with equal separators, with an optional time after `T`, or for a time.
fn is_date(text: &str) -> bool {
    // At most four digits, which is a year. Longer groups are ids.
    let is_group = |group: &str| (1..=4).contains(&group.len()) && group.bytes().all(|digit| digit.is_ascii_digit());
    // The time may have a zone or fractions: only its first character is checked.
    let (day, is_timed) = match text.split_once(['T', 't']) {
        Some((day, time)) => (day, time.starts_with(|digit: char| digit.is_ascii_digit())),
        None => (text, false),
    };
    let parted = |sign: char, groups: usize| day.split(sign).count() == groups && day.split(sign).all(is_group);
    let is_day = parted('-', 3) || parted('/', 3) || parted('.', 3);
    let is_time = day == text && (parted(':', 2) || parted(':', 3));
    is_time || is_day && (is_timed || day == text)
}

/// Pads the groups of a date or a time to two digits: `9:00` to `09:00`.
fn padded(text: &str) -> String {
    let mut padded = String::with_capacity(text.len() + 2);
    for group in text.split_inclusive(['-', '/', '.', ':']) {
        let digits = group.trim_end_matches(['-', '/', '.', ':']);
        if digits.len() == 1 {
            padded.push('0');
        }
        padded.push_str(group);
    }
    padded
}

/// Normalizes a number: `1,200` to `1200`, `48,30` and `48.30` to `48.3`. The last separator is the decimal one, unless it
/// separates thousands.
fn number(text: &str) -> String {
    if let Some(positive) = text.strip_prefix(MINUS) {
        return format!("-{}", number(positive));
    }
    let last = text.rfind(['.', ',']);
    let Some(last) = last else { return text.to_owned() };
    let (whole, fraction) = (&text[..last], &text[last + 1..]);
    // The first group of thousands has up to three digits and no zero at its start: `0,125` is a fraction.
    let is_group = !whole.starts_with('0')
        && whole
            .split(',')
            .next()
            .is_some_and(|group| (1..=3).contains(&group.len()));
    // A separator that occurs twice cannot be a decimal one.
    let is_thousands = whole.contains(&text[last..=last])
        || (text[last..].starts_with(',') && fraction.len() == 3 && !whole.contains('.') && is_group);
    if is_thousands {
        return text.replace(['.', ','], "");
    }
    // `48.30` and `48.3` are one amount.
    let (whole, fraction) = (whole.replace(['.', ','], ""), fraction.trim_end_matches('0'));
    match fraction {
        "" => whole,
        fraction => format!("{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fact, facts_of};
    use super::*;

    fn found(text: &str) -> Vec<(FactKind, String)> {
        facts_of(text)
            .into_iter()
            .map(|Fact { kind, text }| (kind, text))
            .collect()
    }

    #[test]
    fn equal_values_in_two_notations_are_one_fact_and_different_values_are_two() {
        for (one, other) in [
            ("it is 0,125", "it is 0.125"),
            ("it is -0,125", "it is −0.125"),
            ("it is 1234,567", "it is 1234.567"),
            ("it is 1,234", "it is 1234"),
            ("at 9:00", "at 09:00"),
            ("on 3.4.2026", "on 03.04.2026"),
            ("it is (-5)", "it is -5"),
            ("it is 10 - 5", "it is 10, 5"),
            ("the list\n- 5", "the list: 5"),
            ("No hay acceso", "sin acceso"),
            ("Não há acesso", "sem acesso"),
            ("Non c'è accesso", "senza accesso"),
        ] {
            assert_eq!(found(one), found(other), "{one} {other}");
            assert!(!found(one).is_empty(), "{one}");
        }
        for (one, other) in [
            ("it is -5", "it is 5"),
            ("it is −5", "it is 5"),
            ("it is 0,125", "it is 125"),
            ("at 9:00", "at 9:01"),
            ("No hay acceso", "Hay acceso"),
            ("No hay acceso", "No hay problema"),
        ] {
            assert_ne!(found(one), found(other), "{one} {other}");
        }
    }

    #[test]
    fn every_kind_of_fact_is_recognized_by_its_form() {
        use FactKind::{Date, Id, Name, Negation, Number};
        for (text, facts) in [
            (
                "we owe 1,200 and 48.30 and 7",
                vec![(Number, "1200"), (Number, "48.3"), (Number, "7")],
            ),
            ("1.234.567,50 or 12,5", vec![(Number, "12.5"), (Number, "1234567.5")]),
            (
                "on 2026-01-02, 3/4/2026 or 24.12.2026 at 14:30.",
                vec![
                    (Date, "03/04/2026"),
                    (Date, "14:30"),
                    (Date, "2026-01-02"),
                    (Date, "24.12.2026"),
                ],
            ),
            ("since 2026-01-02T10:30:00Z", vec![(Date, "2026-01-02t10:30:00z")]),
            (
                "order AX-7741 of ada@example.org, order_id, 12-34",
                vec![
                    (Id, "12-34"),
                    (Id, "ada@example.org"),
                    (Id, "ax-7741"),
                    (Id, "order_id"),
                ],
            ),
            (
                "The parcel of Petra's son. Tell DHL that I know",
                vec![(Name, "dhl"), (Name, "petra")],
            ),
            (
                "it is not refundable, isn’t the end, never. Open",
                vec![(Negation, "end"), (Negation, "refundable")],
            ),
            ("das ist nicht die Regel", vec![(Name, "regel"), (Negation, "regel")]),
            ("订单12345不退款", vec![(Number, "12345"), (Negation, "退")]),
            ("nothing here to see", vec![]),
        ] {
            let facts: Vec<(FactKind, String)> =
                facts.into_iter().map(|(kind, text)| (kind, text.to_owned())).collect();
            assert_eq!(found(text), facts, "{text}");
        }
    }
}
