//! Subject of a statement, by which a newer statement replaces an older one.
//!
//! The subject is the words before the first copula or colon (`The budget cap is`), with all ids and names. A phrase at the start that
//! announces a correction (`en realidad`) is not part of it. Two statements have one subject if these words are equal, and if the words
//! after the copula are equal without the values (numbers, dates, ids, names). If the newer statement is a correction, the words after
//! the copula may differ. A statement without a copula has no subject, and replaces only an equal one. An id or a name is a value only
//! directly after the copula. In a binding statement the same is true of numbers and dates, and the text after the value must be equal:
//! two rules about different people or days are two rules.

use super::super::super::extractive::is_unspaced;
use super::super::facts::{FactKind, lower, words};
use super::lines::label;
use super::words::words_of_languages;
use super::{Section, Statement};

/// Comparable forms of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// The whole statement in lower case with single spaces and without marks at its end.
    pub(super) text: String,
    /// Words before the copula; empty if there is none, or if they identify nothing.
    pub(super) of: String,
    /// `of`, and the words after the copula without values.
    pub(super) form: String,
    /// True if the statement corrects an earlier one.
    pub(super) is_correction: bool,
    /// True if a label says so (`Correction: ...`).
    pub(super) is_labelled: bool,
}

impl Subject {
    pub(super) fn of(statement: &Statement) -> Self {
        let known = words_of_languages();
        let label = label(&statement.text);
        let is_labelled = matches!(label, Some((Section::Corrections, text)) if !text.is_empty());
        // The label is not part of the subject: `Correction: the price is 5` corrects `The price is 4`.
        let said = label.map_or(statement.text.as_str(), |(_, text)| {
            if text.is_empty() { &statement.text } else { text }
        });
        let said = said.trim_start();
        let lower = lower(said);
        let is_correction = is_labelled || known.hits(&lower).has(Section::Corrections);
        // Nor is a phrase such as `en realidad`. Its characters in lower case are as many as in `said`.
        let skipped = known.correction_at_start(&lower);
        let after_characters = |text: &str| text.char_indices().nth(skipped).map_or(text.len(), |(at, _)| at);
        if said.contains(is_unspaced) {
            let text = plain(lower.trim());
            let corrected = lower[after_characters(&lower)..].trim();
            return Self {
                text,
                is_labelled,
                ..Self::unspaced(statement, corrected, is_correction)
            };
        }
        let said = &said[after_characters(said)..];
        let words = words(said);
        let is_binding = is_binding(statement);
        let (mut of, mut after) = (Vec::new(), Vec::new());
        let mut is_after = false;
        // German: `Eigentlich ist der Preis 5` corrects `Der Preis ist 4`. The value then follows the subject.
        let is_inverted = skipped > 0 && words.first().is_some_and(|word| known.is_copula(&word.compared()));
        let mut end = 0;
        for (at, word) in words.iter().enumerate() {
            let compared = word.compared();
            let gap = &said[end..word.at];
            let is_colon = gap.contains([':', '：', '=']);
            end = word.at + word.text.len();
            let signs = signs(gap);
            if !signs.is_empty() {
                // `C++` and `C#`, or `> 10` and `< 10`, are different.
                if is_after { &mut after } else { &mut of }.push(signs);
            }
            if is_inverted && at == 0 {
                continue;
            }
            let is_amount = matches!(word.kind(), Some(FactKind::Number | FactKind::Date));
            if !is_after && (is_colon || is_inverted && is_amount) && !of.is_empty() {
                is_after = true;
            }
            if is_after {
                let is_direct = after.is_empty();
                let is_value = match word.kind() {
                    Some(FactKind::Number | FactKind::Date) => is_direct || !is_binding,
                    Some(FactKind::Id | FactKind::Name) => is_direct && statement.section != Section::Rules,
                    // The first word after a colon may start a sentence. Only the last word of the statement is certainly a name.
                    Some(FactKind::Negation) | None => {
                        is_colon
                            && is_direct
                            && at + 1 == words.len()
                            && statement.section != Section::Rules
                            && word.text.starts_with(char::is_uppercase)
                    }
                };
                after.push(if is_value { "#".to_owned() } else { compared });
            } else if known.is_copula(&compared) && !of.is_empty() {
                is_after = true;
            } else {
                of.push(compared);
            }
        }
        after.push(signs(&said[end..]));
        let is_known = is_after && !of.iter().all(|word| known.is_pronoun(word));
        let of = if is_known { content(&of) } else { String::new() };
        let form = if of.is_empty() {
            String::new()
        } else {
            format!("{of} = {}", after.join(" "))
        };
        Self {
            text: plain(&lower),
            of,
            form,
            is_correction,
            is_labelled,
        }
    }

    /// Compares a statement in a script without spaces by characters: its words are unknown.
    fn unspaced(statement: &Statement, lower: &str, is_correction: bool) -> Self {
        let known = words_of_languages();
        let copula = lower
            .char_indices()
            .find(|(_, c)| known.is_copula(c.encode_utf8(&mut [0; 4])));
        let (mut of, mut form) = (String::new(), String::new());
        if let Some((at, copula)) = copula {
            let subject = lower[..at].trim();
            if !subject.is_empty() && !known.is_pronoun(subject) {
                subject.clone_into(&mut of);
                let is_rule = statement.section == Section::Rules;
                let is_value = |c: char| c.is_ascii_digit() || c.is_ascii_alphabetic() && !is_rule;
                let is_binding = is_binding(statement);
                form = format!("{of} = ");
                let start = form.len();
                for c in lower[at + copula.len_utf8()..].chars().filter(|c| !c.is_whitespace()) {
                    // One sign for each value, whatever its length.
                    let is_direct = matches!(&form[start..], "" | "#");
                    match (is_value(c) && (is_direct || !is_binding), form.ends_with('#')) {
                        (true, true) => {}
                        (true, false) => form.push('#'),
                        (false, _) => form.push(c),
                    }
                }
            }
        }
        Self {
            text: plain(lower),
            of,
            form,
            is_correction,
            is_labelled: false,
        }
    }
}

/// Words by which two wordings of one statement are recognized: without their endings, without values, and without short words, which have
/// little content in most languages.
#[derive(Debug)]
pub(super) struct Topic(Vec<String>);

/// Number of characters of a word that are compared. The rest is often an ending.
const STEM: usize = 5;
/// Minimum number of characters of a compared word.
const LEAST_WORD: usize = 4;

impl Topic {
    pub(super) fn of(text: &str) -> Self {
        let known = words_of_languages();
        let text = label(text).map_or(text, |(_, said)| said);
        let mut stems: Vec<String> = Vec::new();
        for word in words(text) {
            let compared = word.compared();
            let is_value = matches!(word.kind(), Some(FactKind::Number | FactKind::Date | FactKind::Id));
            let is_content = compared.chars().nth(LEAST_WORD - 1).is_some() && !known.is_copula(&compared);
            if is_content && !is_value && !known.is_pronoun(&compared) {
                stems.push(compared.chars().take(STEM).collect());
            }
        }
        // Scripts without spaces have no words: pairs of characters are compared.
        let signs: Vec<char> = text
            .chars()
            .filter(|c| c.is_alphanumeric() && is_unspaced(*c))
            .collect();
        stems.extend(signs.windows(2).map(|pair| pair.iter().collect()));
        stems.sort_unstable();
        stems.dedup();
        Self(stems)
    }

    /// Returns true if the topics have more than half of their words in common.
    pub(super) fn resembles(&self, other: &Self) -> bool {
        let common = self.0.iter().filter(|word| other.0.binary_search(word).is_ok());
        common.count() * 4 > self.0.len() + other.0.len()
    }
}

fn is_binding(statement: &Statement) -> bool {
    statement.is_binding || matches!(statement.section, Section::Rules | Section::Constraints)
}

/// Returns a text in a form in which repetitions are equal, with all signs within it.
fn plain(lower: &str) -> String {
    let words: Vec<&str> = lower.split_whitespace().collect();
    words.join(" ").trim_end_matches(['.', '!', '。', '！']).to_owned()
}

/// Returns the characters between two words that have a meaning, which marks of a sentence and currencies have not.
fn signs(gap: &str) -> String {
    let is_mark = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '-' | '.' | ',' | ';' | ':' | '!' | '?' | '=' | '(' | ')' | '[' | ']' | '"' | '\'' | '`' | '*' | '_'
            )
            || matches!(
                c,
                '$' | '€' | '£' | '¥' | '–' | '—' | '…' | '’' | '‘' | '“' | '”' | '„' | '«' | '»' | '：'
            )
    };
    gap.chars().filter(|c| !is_mark(*c)).collect()
}

/// Joins the words of a subject without articles at its start and adverbs of a correction.
fn content(words: &[String]) -> String {
    let known = words_of_languages();
    let skipped = words
        .iter()
        .take_while(|word| known.is_pronoun(word) || known.hits(word).has(Section::Corrections));
    words[skipped.count()..].join(" ")
}

#[cfg(test)]
mod tests {
    use pirn_definition::message::Role;

    use super::*;

    fn subject(section: Section, text: &str) -> Subject {
        Subject::of(&Statement {
            section,
            text: text.to_owned(),
            ids: Vec::new(),
            from: Role::User,
            is_binding: false,
            weight: 0,
        })
    }

    #[test]
    fn statements_that_differ_in_their_values_have_one_subject() {
        for (one, other) in [
            (
                "Budget cap is $500 total. Never exceed.",
                "Budget cap is $800 total. Never exceed.",
            ),
            ("FACT: The codename is LANTERN.", "The codename is AURORA."),
            ("Order AX-1 is 40 EUR.", "order AX-1 is 50 EUR"),
            ("Shipping date: 2027-01-02", "Shipping date: 2027-02-03"),
            (
                "Weekly report day for Petra: Tuesday",
                "Weekly report day for Petra: Friday",
            ),
            ("Der Tag des Berichts: Montag", "Der Tag des Berichts: Freitag"),
            ("Der Preis ist 40 EUR.", "Der Preis ist 45 EUR."),
            ("项目预算是 500 元。", "项目预算是 1200 元。"),
        ] {
            let (one, other) = (subject(Section::Facts, one), subject(Section::Facts, other));
            assert!(!one.form.is_empty() && one.form == other.form, "{one:?} {other:?}");
        }
    }

    #[test]
    fn statements_about_different_things_have_different_subjects() {
        for (one, other) in [
            ("Order AX-1 is 40 EUR.", "Order AX-2 is 40 EUR."),
            ("Order AX-1 is paid.", "Order AX-1 is 40 EUR."),
            ("Note of Petra: Tests are ready.", "Note of Petra: Docs are ready."),
            ("Travel budget is $500.", "Project budget is $500."),
            ("项目预算是 500 元。", "差旅预算是 500 元。"),
        ] {
            assert_ne!(
                subject(Section::Facts, one).form,
                subject(Section::Facts, other).form,
                "{one} {other}"
            );
        }
        let rule = |text| subject(Section::Rules, text);
        assert_ne!(
            rule("The key is never given to Petra.").form,
            rule("The key is never given to Anna.").form
        );
        assert_eq!(rule("Never ask Petra.").form, "", "no copula");
        assert_eq!(rule("It is 5.").form, "", "a pronoun identifies nothing");
    }

    #[test]
    fn rules_that_differ_in_more_than_the_value_after_the_copula_are_different() {
        for (one, other) in [
            ("Access is forbidden for user 5.", "Access is forbidden for user 7."),
            (
                "Deploying is forbidden on 2026-12-24.",
                "Deploying is forbidden on 2026-12-31.",
            ),
            (
                "The deadline is Monday for Team Alpha.",
                "The deadline is Tuesday for Team Beta.",
            ),
            ("The load must be > 10.", "The load must be < 90."),
            ("The limit is > 10.", "The limit is < 90."),
            ("Never use C++.", "Never use C#."),
            ("Never run `rm -rf /`.", "Never run `rm -rf ~`."),
            ("C++ is forbidden.", "C# is forbidden."),
            ("访问是禁止的，用户 5。", "访问是禁止的，用户 7。"),
        ] {
            for section in [Section::Rules, Section::Constraints] {
                let (one, other) = (subject(section, one), subject(section, other));
                assert_ne!(one.text, other.text);
                assert!(one.form.is_empty() || one.form != other.form, "{one:?} {other:?}");
            }
        }
        let fact = |text| subject(Section::Facts, text).form;
        assert_ne!(fact("Petra has ordered AX-7741."), fact("Petra has ordered AX-9000."));
        let limit = |text| subject(Section::Constraints, text).form;
        assert_eq!(limit("The deadline is Monday."), limit("The deadline is Tuesday."));
    }

    #[test]
    fn a_correction_has_the_subject_of_the_corrected_statement() {
        let one = subject(Section::Facts, "The delivery day is Monday.");
        for text in [
            "Correction: the delivery day is not yet known.",
            "Actually the delivery day is Thursday.",
            "The delivery day is now later.",
        ] {
            let other = subject(Section::Corrections, text);
            assert!(other.is_correction && other.of == one.of, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_correction_in_any_language_has_the_form_of_the_corrected_statement() {
        for (one, other) in [
            (
                "The price of AB-1234 is 18 EUR.",
                "From now on, the price of AB-1234 is 164 EUR.",
            ),
            (
                "Der Preis von AB-1234 ist 18 EUR.",
                "Eigentlich ist der Preis von AB-1234 164 EUR.",
            ),
            (
                "Der Preis von AB-1234 ist 18 EUR.",
                "Ab sofort ist der Preis von AB-1234 164 EUR.",
            ),
            (
                "Le prix de AB-1234 est 18 EUR.",
                "En fait, le prix de AB-1234 est 164 EUR.",
            ),
            (
                "El precio de AB-1234 es 18 EUR.",
                "En realidad, el precio de AB-1234 es 164 EUR.",
            ),
            (
                "O preço de AB-1234 é 18 EUR.",
                "Na verdade, o preço de AB-1234 é 164 EUR.",
            ),
            (
                "Il prezzo di AB-1234 è 18 EUR.",
                "In realtà, il prezzo di AB-1234 è 164 EUR.",
            ),
            ("AB-1234 的价格是 18 欧元。", "其实，AB-1234 的价格是 164 欧元。"),
        ] {
            let (one, other) = (subject(Section::Facts, one), subject(Section::Corrections, other));
            assert!(!one.form.is_empty() && one.form == other.form, "{one:?} {other:?}");
            assert!(other.is_correction && one.text != other.text, "{other:?}");
        }
        let inverted = subject(Section::Corrections, "Eigentlich ist der Preis von CD-5678 164 EUR.");
        let one = subject(Section::Facts, "Der Preis von AB-1234 ist 18 EUR.");
        assert!(!inverted.of.is_empty() && inverted.of != one.of, "{inverted:?}");
    }
}
