//! OpenAI's tokenizers.

use pirn_core::conversation::Tokenizer;
use tiktoken_rs::CoreBPE;

/// One of OpenAI's tokenizers.
#[derive(Clone, Copy)]
pub(super) struct Tiktoken {
    name: &'static str,
    tables: fn() -> &'static CoreBPE,
}

const O200K: Tiktoken = Tiktoken::new("o200k_base", tiktoken_rs::o200k_base_singleton);
const O200K_HARMONY: Tiktoken = Tiktoken::new("o200k_harmony", tiktoken_rs::o200k_harmony_singleton);
const CL100K: Tiktoken = Tiktoken::new("cl100k_base", tiktoken_rs::cl100k_base_singleton);
const P50K: Tiktoken = Tiktoken::new("p50k_base", tiktoken_rs::p50k_base_singleton);
const P50K_EDIT: Tiktoken = Tiktoken::new("p50k_edit", tiktoken_rs::p50k_edit_singleton);
const R50K: Tiktoken = Tiktoken::new("r50k_base", tiktoken_rs::r50k_base_singleton);

impl Tiktoken {
    const fn new(name: &'static str, tables: fn() -> &'static CoreBPE) -> Self {
        Self { name, tables }
    }

    /// The one that a tokenizer's or a model's name means.
    pub(super) fn of(name: &str) -> Option<Self> {
        use tiktoken_rs::tokenizer::Tokenizer as Known;

        let all = [O200K, O200K_HARMONY, CL100K, P50K, P50K_EDIT, R50K];
        let own = all
            .into_iter()
            .find(|one| one.name == name || one.name.strip_suffix("_base") == Some(name));
        own.or_else(|| {
            Some(match tiktoken_rs::tokenizer::get_tokenizer(name)? {
                Known::O200kHarmony => O200K_HARMONY,
                Known::O200kBase => O200K,
                Known::Cl100kBase => CL100K,
                Known::P50kBase => P50K,
                Known::P50kEdit => P50K_EDIT,
                Known::R50kBase | Known::Gpt2 => R50K,
            })
        })
    }
}

impl Tokenizer for Tiktoken {
    fn name(&self) -> &str {
        self.name
    }

    fn count(&self, text: &str) -> u64 {
        (self.tables)().count_ordinary(text) as u64
    }
}
