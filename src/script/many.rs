//! Many texts to check: what QuickJS has to read is read on as many threads as there are cores.
//!
//! 1. Which texts are wrong, and what is said of them, does not depend on how many threads there are.
//! 2. Few texts stay on the caller's thread: a QuickJS takes as long to make as some dozens of texts to read.

use std::num::NonZero;
use std::thread;

use pirn_core::graph::{Snippet, SnippetKind, Syntax, SyntaxFault};

use super::TextSyntax;

/// Texts for QuickJS that are worth a thread of their own.
const ENOUGH: usize = 250;

/// A place among the texts, and what is wrong with the one that stands there.
type Wrong = (usize, SyntaxFault);

/// The places of the texts that do not parse, ascending.
pub(super) fn wrong_of(syntax: &TextSyntax, texts: &[Snippet]) -> Vec<Wrong> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    on_threads(syntax, texts, cores)
}

fn on_threads(syntax: &TextSyntax, texts: &[Snippet], cores: impl FnOnce() -> usize) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let mut hard = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        match text.kind {
            SnippetKind::Expression if TextSyntax::is_plain(&text.source) => {}
            SnippetKind::Template => wrong.extend(fault_of(syntax, texts, place)),
            SnippetKind::Expression | SnippetKind::Code => hard.push(place),
        }
    }
    let worth = hard.len() / ENOUGH;
    let threads = if worth > 1 { cores().min(worth) } else { 1 };
    wrong.extend(shared_out(syntax, texts, &hard, threads));
    wrong.sort_by_key(|(place, _)| *place);
    wrong
}

fn fault_of(syntax: &TextSyntax, texts: &[Snippet], place: usize) -> Option<Wrong> {
    let fault = syntax.check(texts.get(place)?).err()?;
    Some((place, fault))
}

/// Each thread but the caller's makes a QuickJS of its own.
fn shared_out(syntax: &TextSyntax, texts: &[Snippet], places: &[usize], threads: usize) -> Vec<Wrong> {
    let check = |syntax: &TextSyntax, places: &[usize]| -> Vec<Wrong> {
        let wrong = places.iter().filter_map(|place| fault_of(syntax, texts, *place));
        wrong.collect()
    };
    let (own, others) = places.split_at(places.len().div_ceil(threads));
    thread::scope(|scope| {
        let helpers: Vec<_> = others
            .chunks(own.len().max(1))
            .map(|part| {
                let started = thread::Builder::new().spawn_scoped(scope, move || check(&TextSyntax::default(), part));
                (started, part)
            })
            .collect();
        let mut wrong = check(syntax, own);
        for (helper, part) in helpers {
            // a thread that could not be started, or broke, leaves its part to this one
            let done = helper.ok().and_then(|helper| helper.join().ok());
            wrong.extend(done.unwrap_or_else(|| check(syntax, part)));
        }
        wrong
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn texts() -> Vec<Snippet> {
        (0..4_000)
            .map(|n| {
                let (kind, source) = match n % 5 {
                    0 => (SnippetKind::Expression, format!("variables.n{n} + 1")),
                    1 => (SnippetKind::Expression, format!("[{n}]")),
                    2 => (SnippetKind::Code, format!("const a = {n};\nreturn a;")),
                    3 => (SnippetKind::Template, format!("{{{{a{n}}}}}")),
                    _ => match n % 3 {
                        0 => (SnippetKind::Expression, format!("{n} +")),
                        1 => (SnippetKind::Code, format!("return {n} {n}")),
                        _ => (SnippetKind::Template, format!("{{{{#if {n}}}}}")),
                    },
                };
                let source = Arc::from(source);
                Snippet { kind, source }
            })
            .collect()
    }

    #[test]
    fn threads_find_what_one_finds_in_the_same_order() {
        let texts = texts();
        let one_by_one: Vec<Wrong> = {
            let syntax = TextSyntax::default();
            (0..texts.len())
                .filter_map(|place| fault_of(&syntax, &texts, place))
                .collect()
        };
        assert_eq!(one_by_one.len(), 800);
        for cores in [1, 2, 3, 8, 1000] {
            let syntax = TextSyntax::default();
            assert_eq!(on_threads(&syntax, &texts, || cores), one_by_one, "{cores} cores");
        }
    }

    #[test]
    fn few_texts_stay_on_the_thread_of_the_caller() {
        let syntax = TextSyntax::default();
        let texts = &texts()[..200];
        let wrong = on_threads(&syntax, texts, || unreachable!("nobody asks how many cores there are"));
        assert_eq!(wrong.len(), 40);
    }
}
