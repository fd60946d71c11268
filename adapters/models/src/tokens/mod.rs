//! Tokenizers by name.
//!
//! Reading the tables of OpenAI's tokenizers takes noticeable time, so each is read once per process, when it is first used.
//!
//! Not here: the estimate, and the rules for images, which are in `pirn_conversation::conversation`.

#[cfg(feature = "tiktoken")]
mod tiktoken;

use std::sync::{Arc, LazyLock};

use pirn_conversation::conversation::{Estimator, EstimatorOf, MediaRule, Tokenizer};
use pirn_definition::definition::{Profile, nearest};

/// Returns the tokenizer called `name`: a tokenizer (`o200k_base`, `cl100k_base`, `estimate`, ...) or a model (`gpt-4o`). `None`
/// and unknown names select the [`Estimator`]; for `claude` and `gemini` it counts images by the provider's rule. Calls with equal
/// names return one shared object.
///
/// ```
/// assert_eq!(pirn_models::tokens::tokenizer(None).name(), "estimate");
/// ```
pub fn tokenizer(name: Option<&str>) -> Arc<dyn Tokenizer> {
    static ESTIMATOR: LazyLock<Arc<dyn Tokenizer>> = LazyLock::new(|| Arc::new(Estimator));
    static CLAUDE: LazyLock<Arc<dyn Tokenizer>> = LazyLock::new(|| Arc::new(EstimatorOf(MediaRule::Anthropic)));
    static GEMINI: LazyLock<Arc<dyn Tokenizer>> = LazyLock::new(|| Arc::new(EstimatorOf(MediaRule::Gemini)));
    name.and_then(exact).unwrap_or_else(|| match name {
        Some(name) if name.contains("claude") => Arc::clone(&CLAUDE),
        Some(name) if name.contains("gemini") => Arc::clone(&GEMINI),
        Some(_) | None => Arc::clone(&ESTIMATOR),
    })
}

/// Returns the tokenizer of a profile that names none: text is estimated, and images and files are counted by the provider's rule.
/// The model's family takes precedence, for gateways that translate protocols.
pub fn of_provider(profile: &Profile) -> Arc<dyn Tokenizer> {
    static OPENAI: LazyLock<Arc<dyn Tokenizer>> = LazyLock::new(|| Arc::new(EstimatorOf(MediaRule::OpenAi)));
    let model = profile.model.as_deref().unwrap_or_default();
    let family = ["claude", "gemini"].into_iter().find(|family| model.contains(family));
    match (family, profile.provider.as_str()) {
        (Some(family), _) => tokenizer(Some(family)),
        (None, "anthropic") => tokenizer(Some("claude")),
        (None, "gemini") => tokenizer(Some("gemini")),
        (None, "openai") => Arc::clone(&OPENAI),
        (None, _) => tokenizer(None),
    }
}

/// Returns whether a name denotes a built-in tokenizer. Without the feature `tiktoken`, every name passes, because the host that
/// runs the workflow may have it.
pub fn is_known(name: &str) -> bool {
    cfg!(not(feature = "tiktoken")) || name == Estimator::NAME || exact(name).is_some()
}

/// Returns the message about an unknown tokenizer, and a suggestion.
pub fn unknown(name: &str) -> (String, String) {
    let message = format!("unknown tokenizer `{name}`");
    let help = nearest(name, names()).map_or_else(
        || {
            format!(
                "there are {}, and the names of OpenAI's models",
                names().collect::<Vec<_>>().join(", ")
            )
        },
        |near| format!("did you mean `{near}`?"),
    );
    (message, help)
}

/// Returns the names of the built-in tokenizers.
fn names() -> impl Iterator<Item = &'static str> {
    #[cfg(feature = "tiktoken")]
    let exact = tiktoken::names();
    #[cfg(not(feature = "tiktoken"))]
    let exact = std::iter::empty();
    std::iter::once(Estimator::NAME).chain(exact)
}

#[cfg(feature = "tiktoken")]
fn exact(name: &str) -> Option<Arc<dyn Tokenizer>> {
    tiktoken::of(name)
}

#[cfg(not(feature = "tiktoken"))]
fn exact(_: &str) -> Option<Arc<dyn Tokenizer>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_tokenizer_falls_back_to_the_estimate() {
        for name in [None, Some("estimate"), Some("llama-of-mine"), Some("")] {
            assert_eq!(tokenizer(name).name(), Estimator::NAME, "{name:?}");
        }
    }

    #[cfg(feature = "tiktoken")]
    #[test]
    fn a_model_counts_like_its_tokenizer() {
        let text = "Hello, world! 你好";
        assert_eq!(tokenizer(Some("o200k_base")).count("hello world"), 2);
        for (model, name) in [
            ("gpt-4o", "o200k_base"),
            ("gpt-4", "cl100k_base"),
            ("cl100k", "cl100k_base"),
        ] {
            assert_eq!(tokenizer(Some(model)).name(), name);
            assert_eq!(
                tokenizer(Some(model)).count(text),
                tokenizer(Some(name)).count(text),
                "{model}"
            );
        }
    }

    #[test]
    fn a_tokenizer_is_a_shared_instance() {
        for name in [None, Some("cl100k_base"), Some("gpt-4o"), Some("gpt2")] {
            let same = std::ptr::addr_eq(Arc::as_ptr(&tokenizer(name)), Arc::as_ptr(&tokenizer(name)));
            assert!(same, "{name:?}");
        }
    }

    #[cfg(feature = "tiktoken")]
    #[test]
    fn special_tokens_are_counted_as_ordinary_text() {
        assert!(tokenizer(Some("cl100k_base")).count("<|endoftext|>") > 1);
    }

    #[cfg(feature = "tiktoken")]
    #[test]
    fn the_estimate_is_near_the_exact_count_in_every_script() {
        let texts = [
            "The quick brown fox jumps over the lazy dog, and then it has to go home before the rain sets in.",
            "fn main() { let x: Vec<u8> = vec![1, 2, 3]; println!(\"{x:?}\"); }",
            "工具调用块必须保持完整性，不能被其他消息打断。上下文压缩在令牌超限时触发。",
            "ツール呼び出しのブロックは完全なままでなければならず、他のメッセージで中断されてはなりません。",
            "Блок вызова инструмента должен оставаться целым и не может прерываться другими сообщениями.",
            "{\"role\": \"user\", \"content\": \"hello\", \"toolCalls\": []}",
        ];
        for text in texts {
            let (guess, truth) = (Estimator.count(text), tokenizer(Some("o200k_base")).count(text));
            assert!(guess * 2 >= truth && guess <= truth * 3, "{guess} for {truth}: {text}");
        }
    }

    #[cfg(feature = "tiktoken")]
    #[test]
    fn a_long_text_without_spaces_is_counted() {
        let count = tokenizer(Some("o200k_base")).count(&"a".repeat(200_000));
        assert!((10_000..=200_000).contains(&count), "{count}");
    }
}
