//! Options of `agent` in a script workflow.

use std::ops::Range;

use super::tokens::{Token, TokenKind, calls, tokens};

/// Options of `agent`. The last three are those of Claude Code that have no effect here.
pub const AGENT_OPTIONS: [&str; 12] = [
    "label",
    "maxToolRounds",
    "model",
    "phase",
    "profileId",
    "schema",
    "system",
    "timeoutMs",
    "tools",
    "agentType",
    "effort",
    "isolation",
];

/// Returns the first option of a literal in a call of `agent` that does not exist, with its byte range.
pub fn unknown_agent_option(source: &str) -> Option<(Range<usize>, &str)> {
    if !source.contains("agent") {
        return None;
    }
    let tokens = tokens(source)?;
    let text = |at: usize| tokens.get(at).map_or("", |token| &source[token.at.clone()]);
    let options = calls(source, &tokens, "agent").filter_map(|first| second_argument(source, &tokens, first));
    let literals = options.filter(|at| text(*at) == "{");
    let mut names = literals.flat_map(|at| names(source, &tokens, at + 1));
    names.find(|(_, name)| !AGENT_OPTIONS.contains(name))
}

/// Returns the index of the first token of the second argument.
fn second_argument(source: &str, tokens: &[Token], first: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(first) {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.checked_sub(1)?,
            TokenKind::Sign if depth == 0 && &source[token.at.clone()] == "," => return Some(at + 1),
            TokenKind::Word | TokenKind::Literal | TokenKind::Sign => {}
        }
    }
    None
}

/// Returns the names that an object literal writes, except computed ones and those that it spreads.
fn names<'s>(source: &'s str, tokens: &[Token], first: usize) -> Vec<(Range<usize>, &'s str)> {
    let mut names = Vec::new();
    let (mut depth, mut expects_name) = (0_usize, true);
    for (at, token) in tokens.iter().enumerate().skip(first) {
        let text = &source[token.at.clone()];
        if depth == 0 && expects_name {
            let next = tokens.get(at + 1).map_or("", |next| &source[next.at.clone()]);
            let is_name = matches!(token.kind, TokenKind::Word | TokenKind::Literal);
            if is_name && matches!(next, ":" | "," | "}" | "(") && !text.contains('\\') {
                names.push((token.at.clone(), text.trim_matches(['"', '\''])));
            }
        }
        expects_name = false;
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => {
                let Some(outer) = depth.checked_sub(1) else { break };
                depth = outer;
            }
            TokenKind::Sign => expects_name = depth == 0 && text == ",",
            TokenKind::Word | TokenKind::Literal => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_option_that_does_not_exist_is_found() {
        let found = |source| unknown_agent_option(source).map(|(_, name)| name);
        for (source, name) in [
            ("await agent('x', { modle: 'm' })", "modle"),
            ("agent(`a ${f(1, 2)}`, {model: 'm', 'lable': 1})", "lable"),
            (
                "agent(f(a, { b: 1 }), { schema: { type: 'x', modle: 1 }, temperature: 0 })",
                "temperature",
            ),
            ("agent('a', { ...base, sytem })", "sytem"),
            (
                "agent('a', { label: 'b' }); parallel([() => agent('c', { timeout: 3 })])",
                "timeout",
            ),
        ] {
            assert_eq!(found(source), Some(name), "{source}");
        }
        for source in [
            "agent('x', { model: 'm', effort: 'low', isolation: 'worktree', agentType: 'a', phase: p, label })",
            "agent('x', { schema: { modle: 1 }, tools: ['lable', { x: 1 }] })",
            "agent('x', options); other.agent('x', { modle: 1 }); agents('x', { modle: 1 })",
            "agent('x', { [name]: 1, ...{ modle: 1 } })",
            "agent(f({ modle: 1 }))",
            "function agent(a, { b }) {}",
        ] {
            assert_eq!(found(source), None, "{source}");
        }
    }
}
