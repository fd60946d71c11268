//! Search for the candidate word most similar to a misspelt one.

/// Longer words are not compared, because the cost is quadratic in their length.
const LONGEST: usize = 64;
/// Minimum length of a prefix that counts as its word: `target` for `targetNodeId`.
const SHORTEST_BEGINNING: usize = 4;
/// Minimum length of a suffix that counts as its word: `attempts` for `maxAttempts`.
const SHORTEST_END: usize = 6;

/// Returns the candidate with the least edit distance, if it is similar enough.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded: Vec<char> = fold(word);
    if folded.len() > LONGEST {
        return None;
    }
    // Two edits make most short words equal to some other one.
    let allowed = match folded.len() {
        0 | 1 => 0,
        2..=4 => 1,
        length => (length / 3).max(2),
    };
    known
        .map(|candidate| {
            let other = fold(candidate);
            let begins = folded.len() >= SHORTEST_BEGINNING && other.starts_with(&folded);
            // at least as many edits as the lengths differ by
            let at_least = folded.len().abs_diff(other.len());
            let ends = folded.len() >= SHORTEST_END && other.ends_with(&folded);
            let edits = if folded == other {
                0
            } else if begins {
                1
            } else if ends {
                at_least.min(2)
            } else if at_least > allowed {
                at_least
            } else {
                distance(&folded, &other)
            };
            (edits, candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        // Of equally near candidates, one of the word's own length is more likely than a shorter or longer one.
        .min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

/// Normalises a word: `fork_path_ids`, `ForkPathIds` and `forkPathIds` are equal.
fn fold(word: &str) -> Vec<char> {
    word.chars()
        .filter(|c| *c != '_' && *c != '-')
        .flat_map(char::to_lowercase)
        .collect()
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let replaced = above[j] + usize::from(from != to);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *to && *from == b[j - 1] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn swapped_letters_typing_errors_and_other_case_are_near() {
        let known = ["expression", "condition", "forkPathIds"];
        assert_eq!(nearest("expresion", known.into_iter()), Some("expression"));
        assert_eq!(nearest("conditoin", known.into_iter()), Some("condition"));
        assert_eq!(nearest("fork_path_ids", known.into_iter()), Some("forkPathIds"));
        assert_eq!(nearest("itemz", ["item", "items"].into_iter()), Some("items"));
        let fields = ["maxAttempts", "initialDelayMs"];
        assert_eq!(nearest("attempts", fields.into_iter()), Some("maxAttempts"));
    }

    #[test]
    fn an_unrelated_word_is_near_to_nothing() {
        assert_eq!(nearest("temperature", ["id", "name"].into_iter()), None);
        assert_eq!(nearest(&"x".repeat(1_000_000), ["id"].into_iter()), None);
    }
}
