//! Error messages with their causes, which reqwest's messages omit.

/// Returns the messages of an error and its causes, the deepest last.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
