//! TextRank over sentences, without hash maps: the order is equal on every machine.

use std::collections::{BTreeMap, BTreeSet};

use super::is_unspaced;
use super::sentences::Sentence;

/// Maximum number of terms per sentence; further ones are ignored.
// Bounds the comparison of two sentences: data without spaces may be one long sentence.
const MOST_TERMS: usize = 96;
/// Similarity from which on the second of two sentences is redundant.
const ALIKE: f64 = 0.8;
// A fixed number instead of a threshold, so that the arithmetic is equal on all machines.
const ROUNDS: usize = 30;
const DAMPING: f64 = 0.85;

/// Returns indices of the sentences, the most central first; equals in their order. A sentence that is redundant with a better one
/// is omitted.
pub(super) fn ranked(sentences: &[Sentence<'_>]) -> Vec<usize> {
    let terms = terms(sentences);
    let likeness = likeness(&terms);
    let scores = scores(&likeness);
    let mut order: Vec<usize> = (0..sentences.len()).collect();
    // `total_cmp` orders all floating-point numbers, and the index breaks ties.
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let mut chosen: Vec<usize> = Vec::with_capacity(order.len());
    for place in order {
        // Texts are compared too, because sentences without terms are similar to nothing.
        let is_said =
            |better: &usize| likeness[place][*better] >= ALIKE || sentences[place].text == sentences[*better].text;
        // In the order of the rank, so that the better of two redundant sentences stays.
        if !chosen.iter().any(is_said) {
            chosen.push(place);
        }
    }
    chosen
}

/// Returns the terms of each sentence as numbers: words, or pairs of characters in scripts without spaces.
fn terms(sentences: &[Sentence<'_>]) -> Vec<BTreeSet<usize>> {
    // Numbers instead of strings: sentences are compared with each other, a quadratic number of times.
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut number = |term: String| {
        let next = numbers.len();
        *numbers.entry(term).or_insert(next)
    };
    sentences
        .iter()
        .map(|sentence| terms_of(sentence.text).into_iter().map(&mut number).collect())
        .collect()
}

fn terms_of(text: &str) -> BTreeSet<String> {
    let mut terms = BTreeSet::new();
    let mut word = String::new();
    let mut before: Option<char> = None;
    // The added space ends the last word.
    for c in text.chars().chain([' ']) {
        if terms.len() >= MOST_TERMS {
            break;
        }
        let is_letter = c.is_alphanumeric();
        if is_letter && !is_unspaced(c) {
            // One character may have several in lower case.
            word.extend(c.to_lowercase());
            before = None;
            continue;
        }
        // Taken, so that the next word starts empty.
        let ended = std::mem::take(&mut word);
        // Short words are mostly function words, which connect sentences without a common topic.
        if ended.chars().count() > 2 && !COMMON.contains(&ended.as_str()) {
            terms.insert(ended);
        }
        if let (true, Some(first)) = (is_letter, before) {
            terms.insert([first, c].into_iter().collect());
        }
        // Pairs of adjacent characters only: a mark or space separates them.
        before = is_letter.then_some(c);
    }
    terms
}

/// Frequent English words, and the names of roles.
const COMMON: &[&str] = &[
    "assistant",
    "user",
    "about",
    "and",
    "are",
    "but",
    "can",
    "for",
    "from",
    "had",
    "has",
    "have",
    "her",
    "his",
    "its",
    "not",
    "our",
    "she",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "they",
    "this",
    "was",
    "were",
    "will",
    "with",
    "would",
    "you",
    "your",
];

/// Computes the similarity of sentences, from 0 to 1: their shared terms, normalized by length.
fn likeness(terms: &[BTreeSet<usize>]) -> Vec<Vec<f64>> {
    let mut all = vec![vec![0.0; terms.len()]; terms.len()];
    for a in 0..terms.len() {
        // The similarity is symmetric, so that half of the pairs is computed.
        for b in 0..a {
            let shared = terms[a].intersection(&terms[b]).count();
            if shared > 0 {
                // Square roots are exact on every machine; logarithms are not.
                let value = shared as f64 / ((terms[a].len() * terms[b].len()) as f64).sqrt();
                all[a][b] = value;
                all[b][a] = value;
            }
        }
    }
    all
}

/// Computes the centrality of each sentence: it is high if similar sentences are central.
fn scores(likeness: &[Vec<f64>]) -> Vec<f64> {
    // Computed once instead of in each round.
    let totals: Vec<f64> = likeness.iter().map(|row| row.iter().sum()).collect();
    let mut scores = vec![1.0; likeness.len()];
    for _ in 0..ROUNDS {
        scores = likeness
            .iter()
            .map(|row| {
                let given = row
                    .iter()
                    .zip(&totals)
                    .zip(&scores)
                    // A sentence that is similar to none has the total 0, by which nothing must be divided.
                    .filter(|((like, _), _)| **like > 0.0);
                let sum: f64 = given.map(|((like, total), score)| like / total * score).sum();
                (1.0 - DAMPING) + DAMPING * sum
            })
            .collect();
    }
    scores
}
