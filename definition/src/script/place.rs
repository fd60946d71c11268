//! Converts between bytes and positions in a text: lines and columns start at 1, columns count characters.

/// Returns the byte offset of a line and column, or the end of the line or text if it is shorter.
pub fn offset(text: &str, line: u32, column: u32) -> usize {
    let before = line.saturating_sub(1) as usize;
    let start = match before.checked_sub(1) {
        None => 0,
        Some(ends) => match text.match_indices('\n').nth(ends) {
            Some((end, _)) => end + 1,
            None => return text.len(),
        },
    };
    let line = text[start..].split('\n').next().unwrap_or_default();
    let within = line.char_indices().nth(column.saturating_sub(1) as usize);
    start + within.map_or(line.len(), |(at, _)| at)
}

/// Returns the line and column of a byte offset.
pub fn line_and_column(text: &str, offset: usize) -> (u32, u32) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    (number(line), number(column))
}

/// Converts a column given by QuickJS, which counts bytes, to characters.
pub fn column_of_bytes(text: &str, line: u32, column: u32) -> u32 {
    let start = offset(text, line, 1);
    line_and_column(text, start + column.saturating_sub(1) as usize).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_and_column_give_the_byte_offset_again(text in "[ab\u{e9}\u{65e5}\n]{0,40}") {
            for (at, _) in text.char_indices() {
                let (line, column) = line_and_column(&text, at);
                prop_assert_eq!(offset(&text, line, column), at);
            }
            prop_assert_eq!(offset(&text, 1000, 1), text.len());
        }
    }
}
