//! OpenAI's tokenizers.

use std::sync::{Arc, LazyLock};

use pirn_core::conversation::{MediaRule, Tokenizer};
use pirn_core::message::Part;
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

/// The one that a tokenizer's or a model's name means.
pub(super) fn of(name: &str) -> Option<Arc<dyn Tokenizer>> {
    use tiktoken_rs::tokenizer::Tokenizer as Known;

    let all = [&O200K, &O200K_HARMONY, &CL100K, &P50K, &P50K_EDIT, &R50K];
    let own = all
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
        (self.tables)().count_ordinary(text) as u64
    }

    fn count_media(&self, part: &Part) -> u64 {
        MediaRule::OpenAi.cost(part)
    }
}
