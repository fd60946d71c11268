//! Detects runs that may have failed because they were started without an input.

use pirn::RunErrorCode;
use pirn_definition::graph::Compiled;
use serde_json::Value;

/// True if a workflow that reads an input was started without one.
#[derive(Clone, Copy, Default)]
pub(crate) struct MissingInput(bool);

impl MissingInput {
    /// Checks the workflow with this id.
    pub(crate) fn of(compiled: &Compiled, workflow: &str, input: &Value) -> Self {
        let mut graphs = compiled.graphs.iter();
        let graph = graphs.find(|graph| *graph.workflow_id == *workflow);
        let reads = graph.is_some_and(|graph| graph.snippets.iter().any(|snippet| names_input(&snippet.source)));
        Self(reads && input.is_null())
    }

    /// Returns the hint if an error with one of these codes may be caused by the missing input.
    pub(crate) fn hint(self, mut codes: impl Iterator<Item = RunErrorCode>) -> Option<&'static str> {
        let is_of_a_text = |code| matches!(code, RunErrorCode::ScriptError | RunErrorCode::TemplateError);
        (self.0 && codes.any(is_of_a_text))
            .then_some("the workflow reads `input`, and there is none: pass --input JSON, @FILE or - for stdin")
    }
}

/// True if a text contains the word `input`, not as a field of an object.
fn names_input(text: &str) -> bool {
    let is_of_a_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    text.match_indices("input").any(|(at, word)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|letter| is_of_a_word(letter) || letter == '.') && !after.is_some_and(is_of_a_word)
    })
}

#[cfg(test)]
mod tests {
    use super::names_input;

    #[test]
    fn input_is_found_only_as_a_whole_identifier() {
        for text in ["input", "(input.a || 0)", "{{input.topic}}", "a+input", "!input[0]"] {
            assert!(names_input(text), "{text}");
        }
        for text in ["", "inputs", "my_input", "event.input", "inputé", "putin"] {
            assert!(!names_input(text), "{text}");
        }
    }
}
