//! Preprocessing of a template's source for handlebars.

/// Returns the maximum nesting of blocks and parentheses; an `{{else if}}` is a nested block.
pub(super) fn depth(source: &str) -> usize {
    let (mut blocks, mut brackets, mut deepest) = (0_usize, 0_usize, 0_usize);
    let mut tags = source.split("{{");
    tags.next();
    for tag in tags {
        let mark = tag.trim_start_matches(['{', '~']);
        if mark.starts_with(['#', '^']) || mark.trim_start().starts_with("else ") {
            blocks += 1;
        } else if mark.starts_with('/') {
            blocks = blocks.saturating_sub(1);
        }
        brackets = 0;
        for letter in tag.chars() {
            match letter {
                '(' => brackets += 1,
                ')' => brackets = brackets.saturating_sub(1),
                '}' => break,
                _ => {}
            }
            deepest = deepest.max(blocks + brackets);
        }
    }
    deepest.max(blocks + brackets)
}

/// Converts `nodes["x"].y` and `items[0]` to the notation of handlebars, `nodes.[x].y` and `items.[0]`, within tags only. White
/// space there becomes a space: handlebars reads other characters, such as U+00A0, as part of a name.
pub(super) fn with_dotted_brackets(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{{") {
        text.push_str(before);
        text.push_str("{{");
        let (inside, after) = tag
            .split_once("}}")
            .map_or((tag, ""), |(inside, _)| (inside, &tag[inside.len()..]));
        let mut before_bracket = String::new();
        // The text of an escaped tag is shown as it is.
        let mut spaces = Spaces(before.ends_with('\\').then_some('\\'));
        let mut tail = inside;
        while let Some((head, bracket)) = tail.split_once('[') {
            let member = bracket.split_once(']').filter(|_| {
                head.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | ']'))
                    || (head.is_empty() && before_bracket.ends_with(']'))
            });
            before_bracket.push_str(&spaces.plain(head));
            tail = if let Some((name, after)) = member {
                let name = name.trim_matches(['"', '\'']);
                before_bracket.push_str(&[".[", name, "]"].concat());
                after
            } else {
                before_bracket.push('[');
                bracket
            };
        }
        text.push_str(&before_bracket);
        text.push_str(&spaces.plain(tail));
        rest = after;
    }
    text.push_str(rest);
    text
}

/// Conversion of white space in a tag, with the delimiter of the open string.
struct Spaces(Option<char>);

impl Spaces {
    /// Returns the next part of the tag with plain spaces outside of strings.
    fn plain(&mut self, part: &str) -> String {
        let plain = |letter: char| {
            match (self.0, letter) {
                (Some(quote), _) if quote == letter => self.0 = None,
                (None, '"' | '\'') => self.0 = Some(letter),
                (None, ' ' | '\t' | '\n' | '\r') | (Some(_), _) => {}
                (None, _) if letter.is_whitespace() => return ' ',
                (None, _) => {}
            }
            letter
        };
        part.chars().map(plain).collect()
    }
}
