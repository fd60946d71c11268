//! Untrusted text on the terminal: characters that control the terminal, or disguise the text, are made visible.

use std::borrow::Cow;

/// Replaces every control character except line breaks and tabs, and every invisible or bidirectional mark, by a visible sign: `␛`
/// for an escape, `<U+202E>` for a mark.
pub(crate) fn sanitize(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\u{0}'..='\u{1f}' if is_hidden(letter) => {
                shown.extend(char::from_u32(0x2400 + u32::from(letter)));
            }
            '\u{7f}' => shown.push('\u{2421}'),
            letter if is_hidden(letter) => shown.extend(format!("<U+{:04X}>", u32::from(letter)).chars()),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Makes control characters visible as [`sanitize`] does, on one line.
pub(crate) fn sanitize_line(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|letter| if matches!(letter, '\n' | '\t') { ' ' } else { letter })
        .collect();
    sanitize(&line).into_owned()
}

/// True if a character moves the cursor, controls the terminal, changes the direction of the following text, or is invisible.
fn is_hidden(letter: char) -> bool {
    match letter {
        // Joiners occur in words and in emoji.
        '\n' | '\t' | '\u{200c}' | '\u{200d}' => false,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{feff}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => true,
        letter => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_control_characters_are_made_visible() {
        for (text, shown) in [
            ("plain \u{e9} 界 \u{1f600}", "plain \u{e9} 界 \u{1f600}"),
            ("\u{1b}]0;owned\u{7}", "␛]0;owned␇"),
            ("\u{9b}2J\r\u{8}", "<U+009B>2J␍␈"),
            ("user\u{202e}nimda", "user<U+202E>nimda"),
            ("a\nb\tc", "a\nb\tc"),
            ("\u{1f469}\u{200d}\u{1f4bb}", "\u{1f469}\u{200d}\u{1f4bb}"),
        ] {
            assert_eq!(sanitize(text), shown);
        }
        assert_eq!(sanitize_line("a\nb\u{1b}"), "a b␛");
    }

    proptest! {
        #[test]
        fn only_hidden_characters_are_replaced(letters in prop::collection::vec(prop_oneof![
            any::<char>(), (0..0x20_u32).prop_map(|c| char::from_u32(c).unwrap_or('a')),
            (0x200b..0x2070_u32).prop_map(|c| char::from_u32(c).unwrap_or('a')),
        ], 0..60)) {
            let text: String = letters.iter().collect();
            let shown = sanitize(&text);
            let steers = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
            prop_assert!(!shown.contains(steers), "it steers nothing");
            prop_assert!(!shown.contains(is_hidden));
            prop_assert_eq!(sanitize(&shown), shown.clone(), "it is visible already");
            let kept: String = text.chars().filter(|letter| !is_hidden(*letter)).collect();
            if kept == text {
                prop_assert_eq!(&*shown, text.as_str());
            }
            prop_assert!(!sanitize_line(&text).contains('\n'));
        }
    }
}
