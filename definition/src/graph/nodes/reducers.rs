//! Checks and compiles the reducers of variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::compiler::NodeCompiler;
use crate::definition::{FaultCode, Reducer, ReducerWord};
use crate::graph::diagnostics::pointer;
use crate::graph::model::CompiledReducer;
use crate::script::Path;

/// Names in the scope of a reducer: the combined value of the earlier paths, and the value of the next path.
pub const REDUCED: [&str; 2] = ["a", "b"];

impl NodeCompiler<'_, '_> {
    pub(in crate::graph) fn reducers(&mut self) -> BTreeMap<Arc<str>, CompiledReducer> {
        let mut reducers = BTreeMap::new();
        for (place, variable) in self.definition.variables.iter().enumerate() {
            let pointer = || pointer!["variables", place, "reduce"];
            let reducer = match &variable.reduce {
                None => continue,
                Some(Reducer::Word(word)) => CompiledReducer::Word(*word),
                Some(Reducer::Expression(word)) if is_word(word) => {
                    let message =
                        format!("unknown reducer `{word}`: expected a word or an expression over `a` and `b`");
                    let known = ReducerWord::WORDS.into_iter();
                    self.report
                        .unknown(FaultCode::InvalidValue, &pointer(), message, word, known);
                    continue;
                }
                Some(Reducer::Expression(text)) => {
                    let Self { snippets, report, .. } = self;
                    let compiled = snippets.over(&REDUCED, |snippets| snippets.expression(text, pointer, report));
                    CompiledReducer::Expression(compiled)
                }
            };
            reducers.insert(Arc::from(variable.name.as_str()), reducer);
        }
        reducers
    }
}

/// True if a text is a single name other than `a` and `b`.
fn is_word(text: &str) -> bool {
    let path = Path::of_template(text);
    path.is_some_and(|path| path.steps().is_empty() && !REDUCED.contains(&&**path.root()))
}
