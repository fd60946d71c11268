//! Formats of numbers for people.

/// Groups digits: `24312` as `24,312`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats `▕████████░░░░░░░░▏ 4,812 / 9,600`: the used share of a limit.
pub(super) fn meter(used: u64, limit: u64) -> String {
    const CELLS: u64 = 16;
    let filled = used
        .saturating_mul(CELLS)
        .checked_div(limit)
        .unwrap_or(CELLS)
        .min(CELLS);
    let cells: String = (0..CELLS).map(|cell| if cell < filled { '█' } else { '░' }).collect();
    format!("▕{cells}▏ {} / {}", grouped(used), grouped(limit))
}

/// Returns the used share as a whole percentage, rounded down: 100 only at the limit.
pub(super) fn percent(used: u64, limit: u64) -> u64 {
    used.saturating_mul(100).checked_div(limit).unwrap_or(100)
}

/// Returns at most `length` characters of the text, on one line.
pub(super) fn clipped(text: &str, length: usize) -> String {
    let mut letters = text.chars().map(|c| if c == '\n' { ' ' } else { c });
    let mut short: String = letters.by_ref().take(length).collect();
    if letters.next().is_some() {
        short.pop();
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_by_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_bar_is_full_at_the_limit_and_never_longer() {
        assert_eq!(meter(0, 100), "▕░░░░░░░░░░░░░░░░▏ 0 / 100");
        assert_eq!(meter(50, 100), "▕████████░░░░░░░░▏ 50 / 100");
        assert_eq!(meter(100, 100), meter(100, 100).replace('░', "█"));
        assert!(meter(u64::MAX, 100).starts_with("▕████████████████▏"));
        assert!(meter(1, 0).starts_with("▕████████████████▏"));
    }

    #[test]
    fn a_clipped_string_fits_on_one_line() {
        assert_eq!(clipped("a\nb", 10), "a b");
        assert_eq!(clipped("abcdef", 4), "abc…");
        assert_eq!(clipped("界界", 2), "界界");
    }
}
