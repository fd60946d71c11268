//! Keys that files are full of: they are not copied for each object that has one.

use std::borrow::Cow;

/// A key, as few copies of it as can be.
pub(crate) fn key(text: &str) -> Cow<'static, str> {
    match frequent(text) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(text.to_owned()),
    }
}

/// Any other key works too: what is missing here costs a copy.
fn frequent(text: &str) -> Option<&'static str> {
    macro_rules! one_of {
        ($($word:literal)*) => { match text { $($word => Some($word),)* _ => None } };
    }
    one_of!(
        "id" "to" "from" "type" "name" "code" "data" "config" "nodes" "edges" "input" "output" "weight" "prompt" "system"
        "tools" "routes" "retry" "condition" "expression" "variable" "variableName" "variableType" "description"
        "sourceNodeId" "targetNodeId" "profileId" "function" "action" "parameters" "eventType" "eventName" "role" "content"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_text_whether_it_is_frequent_or_not() {
        for text in ["id", "targetNodeId", "i", "ids", "", "größe"] {
            assert_eq!(key(text), text);
        }
        assert!(matches!(key("id"), Cow::Borrowed(_)));
        assert!(matches!(key("mine"), Cow::Owned(_)));
    }
}
