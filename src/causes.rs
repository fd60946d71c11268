//! The text of an error with its causes: that of reqwest leaves them out.

/// Its text and those of its causes, the deepest last.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
