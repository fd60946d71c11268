//! OpenAI's tokenizers.

use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock};

use pirn_conversation::conversation::{Estimator, MediaRule, Tokenizer};
use pirn_definition::message::Part;
use tiktoken_rs::CoreBPE;

/// One of OpenAI's tokenizers.
struct Tiktoken {
    name: &'static str,
    tables: fn() -> &'static CoreBPE,
}

type Shared = LazyLock<Arc<Tiktoken>>;

static O200K: Shared = Shared::new(|| Tiktoken::shared("o200k_base", tiktoken_rs::o200k_base_singleton));
static O200K_HARMONY: Shared = Shared::new(|| Tiktoken::shared("o200k_harmony", tiktoken_rs::o200k_harmony_singleton));
static CL100K: Shared = Shared::new(|| Tiktoken::shared("cl100k_base", tiktoken_rs::cl100k_base_singleton));
static P50K: Shared = Shared::new(|| Tiktoken::shared("p50k_base", tiktoken_rs::p50k_base_singleton));
static P50K_EDIT: Shared = Shared::new(|| Tiktoken::shared("p50k_edit", tiktoken_rs::p50k_edit_singleton));
static R50K: Shared = Shared::new(|| Tiktoken::shared("r50k_base", tiktoken_rs::r50k_base_singleton));

const ALL: [&Shared; 6] = [&O200K, &O200K_HARMONY, &CL100K, &P50K, &P50K_EDIT, &R50K];

/// Returns the names of the tokenizers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|one| one.name)
}

/// Returns the tokenizer with the name of a tokenizer or model.
pub(super) fn of(name: &str) -> Option<Arc<dyn Tokenizer>> {
    use tiktoken_rs::tokenizer::Tokenizer as Known;

    let own = ALL
        .into_iter()
        .find(|one| one.name == name || one.name.strip_suffix("_base") == Some(name));
    let known = match own {
        Some(known) => known,
        None => match tiktoken_rs::tokenizer::get_tokenizer(name)? {
            Known::O200kHarmony => &O200K_HARMONY,
            Known::O200kBase => &O200K,
            Known::Cl100kBase => &CL100K,
            Known::P50kBase => &P50K,
            Known::P50kEdit => &P50K_EDIT,
            Known::R50kBase | Known::Gpt2 => &R50K,
        },
    };
    Some(Arc::<Tiktoken>::clone(known))
}

impl Tiktoken {
    fn shared(name: &'static str, tables: fn() -> &'static CoreBPE) -> Arc<Self> {
        Arc::new(Self { name, tables })
    }
}

impl Tokenizer for Tiktoken {
    fn name(&self) -> &str {
        self.name
    }

    fn count(&self, text: &str) -> u64 {
        pieces(text).map(|piece| self.count_piece(piece)).sum()
    }

    fn count_media(&self, part: &Part) -> u64 {
        MediaRule::OpenAi.cost(part)
    }
}

impl Tiktoken {
    fn count_piece(&self, piece: &str) -> u64 {
        let tables = (self.tables)();
        // The tokenizer panics if its regular expression exceeds the backtracking limit.
        catch_unwind(|| tables.count_ordinary(piece) as u64).unwrap_or_else(|_| {
            tracing::warn!(
                tokenizer = self.name,
                "a text cannot be tokenized: its token count is estimated"
            );
            Estimator.count(piece)
        })
    }
}

/// Maximum bytes counted in one call. The tokenizers' regular expressions fail after a million backtracking steps, which a long run
/// of one character class can reach.
const PIECE: usize = 64 << 10;

/// Splits a text into pieces of at most [`PIECE`] bytes, if possible before a space that follows a word, which does not change the
/// count.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let (piece, rest) = text.split_at(piece_end(text));
        text = rest;
        Some(piece)
    })
}

fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE {
        return text.len();
    }
    let end = text.floor_char_boundary(PIECE);
    let words_end = |at: &usize| text[..*at].ends_with(char::is_alphanumeric);
    let spaces = text[..end].rmatch_indices(' ').map(|(at, _)| at).take(1_000);
    spaces.filter(|at| *at > 0).find(words_end).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One character of each class in the tokenizers' regular expressions.
    const CLASSES: &[&str] = &[
        " ",
        "\t",
        "\n",
        "\r\n",
        "\u{a0}",
        "a",
        "A",
        "aA",
        "9",
        ".",
        "'",
        "/",
        "\u{4e2d}",
        "\u{301}",
        "\u{1f600}",
        "\0",
        "\u{202e}",
        "\u{1c5}",
        "'s",
    ];

    #[test]
    fn a_long_run_of_any_character_is_counted() {
        let count = |class: &str, bytes: usize| {
            let text = class.repeat(bytes / class.len());
            let count = O200K.count(&text);
            assert!(count > 0 && count <= text.len() as u64, "{class:?}: {count}");
        };
        for class in CLASSES {
            count(class, 200_000);
        }
        // Regression: these inputs caused a panic.
        for class in [" ", "\t"] {
            count(class, 1_200_000);
        }
    }

    #[test]
    fn splitting_an_ordinary_text_does_not_change_its_count() {
        let text =
            "It is a truth universally acknowledged, that 1 single man\nin possession of 20,000 must be in want. "
                .repeat(3_000);
        let whole = O200K.tables;
        assert!(pieces(&text).count() > 1);
        assert_eq!(O200K.count(&text), whole().count_ordinary(&text) as u64);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]
        #[test]
        fn any_sequence_of_character_runs_is_counted(runs in prop::collection::vec((prop::sample::select(CLASSES), 0..150_000_usize), 1..6)) {
            let text: String = runs.iter().map(|(class, count)| class.repeat(*count)).collect();
            prop_assert_eq!(pieces(&text).collect::<String>(), text.clone());
            prop_assert!(pieces(&text).all(|piece| !piece.is_empty() && piece.len() <= PIECE));
            let count = O200K.count(&text);
            prop_assert!(count <= text.len() as u64);
        }
    }
}
