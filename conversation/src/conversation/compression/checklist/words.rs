//! Words by which statements are recognized, from `words.txt`. No other file of this folder contains words of a language.

use std::collections::HashSet;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use foldhash::fast::FixedState;

use super::super::super::extractive::is_unspaced;
use super::Section;

/// Meaning of a phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Occurs in statements of a section.
    Of(Section),
    /// Occurs in statements of a section, and in many others.
    Weak(Section),
    /// Names a section before a colon.
    Label(Section),
    /// May precede the start of a clause.
    Lead,
    /// Separates the subject of a statement from its value.
    Copula,
    /// Subject that does not identify anything.
    Pronoun,
    /// Word or ending of a report, after which some phrases state no rule.
    Past,
    /// Exception of the endings of [`Kind::Past`].
    Present,
    /// End of a question that asks for consent to a statement.
    Tag,
}

struct Phrase {
    kind: Kind,
    /// The phrase must start a clause.
    is_first: bool,
    /// The phrase is delimited by characters that are not letters.
    is_word: bool,
    /// The next word must not be of the past.
    is_present: bool,
}

/// All phrases of all languages.
pub(super) struct Words {
    phrases: Vec<Phrase>,
    finder: AhoCorasick,
    leads: HashSet<String, FixedState>,
    copulas: HashSet<String, FixedState>,
    pronouns: HashSet<String, FixedState>,
    pasts: WordList,
    presents: WordList,
    tags: Vec<String>,
}

/// Words, and endings of words.
#[derive(Default)]
struct WordList {
    words: HashSet<String, FixedState>,
    endings: Vec<String>,
}

impl WordList {
    fn insert(&mut self, word: &str) {
        match word.strip_prefix('-') {
            Some(ending) => self.endings.push(ending.to_owned()),
            None => drop(self.words.insert(word.to_owned())),
        }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(word) || self.endings.iter().any(|ending| word.ends_with(ending))
    }
}

/// Returns the phrases of `words.txt`.
pub(super) fn words_of_languages() -> &'static Words {
    static WORDS: LazyLock<Words> = LazyLock::new(|| Words::read(include_str!("words.txt")));
    &WORDS
}

/// Sections whose phrases a text contains, as sets of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits {
    strong: u16,
    weak: u16,
    labels: u16,
}

impl Hits {
    pub(super) fn has(self, section: Section) -> bool {
        self.strong & section.bit() != 0
    }

    pub(super) fn has_weak(self, section: Section) -> bool {
        self.weak & section.bit() != 0
    }

    /// Returns the first section that a label names.
    pub(super) fn label(self) -> Option<Section> {
        Section::ALL
            .into_iter()
            .find(|section| self.labels & section.bit() != 0)
    }
}

impl Words {
    fn read(text: &str) -> Self {
        let (mut phrases, mut patterns) = (Vec::new(), Vec::new());
        let (mut leads, mut copulas, mut pronouns) = (HashSet::default(), HashSet::default(), HashSet::default());
        let (mut pasts, mut presents, mut tags) = (WordList::default(), WordList::default(), Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            // A line without a colon is empty: a test reads every line of the file.
            let Some((head, words)) = line.split_once(':') else {
                continue;
            };
            let Some(kind) = head.split(' ').next().and_then(Kind::read) else {
                continue;
            };
            for word in words.split('|').map(str::trim) {
                match kind {
                    Kind::Lead => drop(leads.insert(word.to_owned())),
                    Kind::Copula => drop(copulas.insert(word.to_owned())),
                    Kind::Pronoun => drop(pronouns.insert(word.to_owned())),
                    Kind::Past => pasts.insert(word),
                    Kind::Present => presents.insert(word),
                    Kind::Tag => tags.push(word.to_owned()),
                    Kind::Of(_) | Kind::Weak(_) | Kind::Label(_) => {
                        let bare = word.trim_start_matches('^').trim_end_matches('~');
                        phrases.push(Phrase {
                            kind,
                            is_first: word.starts_with('^'),
                            is_word: !bare.starts_with(is_unspaced),
                            is_present: word.ends_with('~'),
                        });
                        patterns.push(bare.to_owned());
                    }
                }
            }
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&patterns)
            .expect("the number of phrases is far below the limit of the library");
        Self {
            phrases,
            finder,
            leads,
            copulas,
            pronouns,
            pasts,
            presents,
            tags,
        }
    }

    /// Returns the sections whose phrases occur in `text`, which is in lower case.
    pub(super) fn hits(&self, text: &str) -> Hits {
        let mut hits = Hits::default();
        for found in self.finder.find_overlapping_iter(text) {
            let phrase = &self.phrases[found.pattern().as_usize()];
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            let is_whole = !phrase.is_word
                || !(before.ends_with(char::is_alphanumeric) || after.starts_with(char::is_alphanumeric));
            let is_excluded =
                phrase.is_first && !self.starts_clause(before) || phrase.is_present && self.starts_report(after);
            if !is_whole || is_excluded {
                continue;
            }
            match phrase.kind {
                Kind::Of(section) => hits.strong |= section.bit(),
                Kind::Weak(section) => hits.weak |= section.bit(),
                Kind::Label(section) => hits.labels |= section.bit(),
                Kind::Lead | Kind::Copula | Kind::Pronoun | Kind::Past | Kind::Present | Kind::Tag => {}
            }
        }
        hits
    }

    /// Returns true if a clause starts after `before`: at the start, after a mark, or after a word such as `please`.
    fn starts_clause(&self, before: &str) -> bool {
        let before = before.trim_end();
        let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        word.is_empty() || self.leads.contains(word)
    }

    /// Returns true if the first word of `after` is of the past: "we never opened it" reports, and "we never open it" is a rule.
    fn starts_report(&self, after: &str) -> bool {
        let word = after
            .trim_start()
            .split(|c: char| !c.is_alphanumeric())
            .next()
            .unwrap_or_default();
        self.pasts.has(word) && !self.presents.has(word)
    }

    /// Returns true for a question, but not for a statement that asks for consent at its end ("Never delete it, ok?"). `text` is in
    /// lower case.
    pub(super) fn is_question(&self, text: &str) -> bool {
        let marks = ['?', '？'];
        let said = text.trim_end_matches(|c: char| marks.contains(&c) || c.is_whitespace());
        let is_tag = |tag: &String| {
            let before = said.strip_suffix(tag.as_str());
            before.is_some_and(|before| {
                !before.is_empty() && (!before.ends_with(char::is_alphanumeric) || tag.starts_with(is_mark))
            })
        };
        text.trim_end().ends_with(marks) && !self.tags.iter().any(is_tag)
    }

    /// Returns the number of characters at the start of `text`, which is in lower case, that only state that it is a correction
    /// (`en realidad, `).
    pub(super) fn correction_at_start(&self, text: &str) -> usize {
        let found = self.finder.find_overlapping_iter(text).filter(|found| {
            let phrase = &self.phrases[found.pattern().as_usize()];
            let is_whole = !phrase.is_word || !text[found.end()..].starts_with(char::is_alphanumeric);
            found.start() == 0 && is_whole && phrase.kind == Kind::Of(Section::Corrections)
        });
        let Some(end) = found.map(|found| found.end()).max() else {
            return 0;
        };
        let rest = text[end..].trim_start_matches(|c: char| c.is_whitespace() || is_mark(c) || matches!(c, ':' | '：'));
        text[..text.len() - rest.len()].chars().count()
    }

    pub(super) fn is_copula(&self, word: &str) -> bool {
        self.copulas.contains(word)
    }

    pub(super) fn is_pronoun(&self, word: &str) -> bool {
        self.pronouns.contains(word)
    }
}

/// Returns true for a comma, at which a tag may start.
fn is_mark(c: char) -> bool {
    matches!(c, ',' | '，' | '、')
}

impl Kind {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "lead" => Self::Lead,
            "copula" => Self::Copula,
            "pronoun" => Self::Pronoun,
            "past" => Self::Past,
            "present" => Self::Present,
            "tag" => Self::Tag,
            word => match (word.strip_prefix("label."), word.strip_suffix('?')) {
                (Some(section), _) => Self::Label(Section::named(section)?),
                (None, Some(section)) => Self::Weak(Section::named(section)?),
                (None, None) => Self::Of(Section::named(word)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_file_of_words_is_read_and_in_lower_case() {
        for line in include_str!("words.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (head, words) = line.split_once(':').unwrap_or_else(|| panic!("no colon: {line}"));
            let (kind, language) = head.split_once(' ').unwrap_or_else(|| panic!("no language: {line}"));
            assert!(Kind::read(kind).is_some() && language.len() == 2, "{line}");
            for word in words.split('|') {
                let bare = word.trim();
                assert!(
                    !bare.is_empty() && bare.to_lowercase() == bare && !bare.contains('’'),
                    "{word:?} in {line}"
                );
            }
        }
    }

    #[test]
    fn a_phrase_is_found_as_whole_words_and_some_only_at_the_start_of_a_clause() {
        let rules = |text: &str| words_of_languages().hits(text).has(Section::Rules);
        assert!(rules("never send it") && rules("please never send it") && rules("if he asks, never answer"));
        assert!(!rules("it never arrived") && !rules("nevertheless it arrived"));
        assert!(rules("you must not open it") && rules("订单不得公开"));
    }
}
