//! Excerpts of a text within a token budget.

use super::super::Tokenizer;

/// Returns the length in bytes of a prefix of `text` within the budget. Found by bisection, so it may be a little short.
pub(super) fn beginning(text: &str, budget: u64, tokenizer: &dyn Tokenizer) -> usize {
    longest(text.len(), budget, |length| {
        // Up, not down: the length must grow, or the bisection would not end inside of a long character.
        let length = text.ceil_char_boundary(length);
        (length, tokenizer.count(&text[..length]))
    })
}

/// Returns the start of a suffix of `text` within the budget. Found by bisection, so it may be a little short.
pub(super) fn end(text: &str, budget: u64, tokenizer: &dyn Tokenizer) -> usize {
    let length = longest(text.len(), budget, |length| {
        // Down, which makes the suffix longer: see `beginning`.
        let start = text.floor_char_boundary(text.len() - length);
        (text.len() - start, tokenizer.count(&text[start..]))
    });
    text.len() - length
}

/// Returns a length within the budget. `cost` may measure a slightly longer excerpt and returns that length. Only excerpts of about
/// the resulting length are tokenized, even if the text is very long.
fn longest(whole: usize, budget: u64, cost: impl Fn(usize) -> (usize, u64)) -> usize {
    // About four bytes a token: the first guess is near the result for most texts.
    let guess = usize::try_from(budget.saturating_mul(4)).unwrap_or(usize::MAX);
    let (mut fits, mut high) = (0, guess.clamp(1, whole.max(1)).min(whole));
    while high > fits {
        let (length, tokens) = cost(high);
        // The result is between the two lengths, which the second loop narrows.
        if tokens > budget {
            break;
        }
        fits = length;
        if fits == whole {
            return fits;
        }
        // Doubled, so that a text with cheap tokens needs few counts.
        high = fits.saturating_mul(2).min(whole);
    }
    while high - fits > 1 {
        let middle = fits + (high - fits) / 2;
        let (length, tokens) = cost(middle);
        if tokens > budget {
            high = middle;
        } else {
            fits = length;
        }
    }
    fits
}

/// Converts to lower case where the length in bytes stays equal, so that offsets in the result are valid in the text.
pub(super) fn folded(text: &str) -> String {
    let fold = |letter: char| {
        let mut small = letter.to_lowercase();
        match (small.next(), small.next()) {
            // Letters such as `İ` change their length in lower case and stay as they are.
            (Some(one), None) if one.len_utf8() == letter.len_utf8() => one,
            _ => letter,
        }
    };
    text.chars().map(fold).collect()
}

/// Returns the part of `text` around offset `at`, with `before` and `after` bytes of context. Omissions are marked.
pub(super) fn around(text: &str, at: usize, before: usize, after: usize) -> String {
    let start = text.floor_char_boundary(at.saturating_sub(before));
    let end = text.ceil_char_boundary(at.saturating_add(after).min(text.len()));
    let mark = |is_cut: bool| if is_cut { "…" } else { "" };
    format!("{}{}{}", mark(start > 0), &text[start..end], mark(end < text.len()))
}

#[cfg(test)]
mod tests {
    use super::super::super::Estimator;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_excerpt_is_the_longest_that_fits_the_budget(text in "[a-zß界🦀,\n ]{0,80}", budget in 0_u64..30) {
            let length = beginning(&text, budget, &Estimator);
            prop_assert!(Estimator.count(&text[..length]) <= budget);
            if let Some(next) = text[length..].chars().next() {
                prop_assert!(Estimator.count(&text[..length + next.len_utf8()]) > budget);
            }
            let start = end(&text, budget, &Estimator);
            prop_assert!(Estimator.count(&text[start..]) <= budget);
            if let Some(last) = text[..start].chars().next_back() {
                prop_assert!(Estimator.count(&text[start - last.len_utf8()..]) > budget);
            }
        }

        #[test]
        fn a_case_folded_text_has_every_letter_at_its_original_offset(text in "\\PC{0,60}") {
            let folded = folded(&text);
            prop_assert_eq!(folded.len(), text.len());
            let places = |text: &str| text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
            prop_assert_eq!(places(&folded), places(&text));
        }
    }
}
