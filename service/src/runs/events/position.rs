//! Positions in the event stream of a run.

use std::fmt;
use std::str::FromStr;

/// A position in the event stream of a run, written `SEQ` or `SEQ.N`.
///
/// Every event of a durable run has a sequence except LLM_TOKEN: a resumed run raises equal events, but different pieces of a
/// reply. The pieces after the event `SEQ` are numbered within the process, `SEQ.1`, `SEQ.2` and so on. Positions are ordered. A
/// reader at a position receives the events after it, so a reader beyond the last event receives only the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) sequence: u64,
    /// Number of the piece; 0 is the event itself.
    pub(crate) piece: u64,
}

impl Position {
    /// The position before the first event.
    pub(crate) const START: Self = Self { sequence: 0, piece: 0 };

    pub(crate) fn of(sequence: u64) -> Self {
        Self { sequence, piece: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.piece {
            0 => write!(f, "{}", self.sequence),
            piece => write!(f, "{}.{piece}", self.sequence),
        }
    }
}

/// The error for a text that is not a position.
#[derive(Debug, PartialEq)]
pub(crate) struct NotAPosition;

impl FromStr for Position {
    type Err = NotAPosition;

    fn from_str(text: &str) -> Result<Self, NotAPosition> {
        let (sequence, piece) = text.split_once('.').unwrap_or((text, "0"));
        let number = |digits: &str| {
            // Check the digits: `u64::from_str` accepts a sign.
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_plain).ok_or(NotAPosition)
        };
        Ok(Self {
            sequence: number(sequence)?,
            piece: number(piece)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_round_trips_and_is_ordered_by_sequence_then_piece() {
        let written = ["0", "1", "1.1", "1.2", "1.10", "2", "2.3", "18446744073709551615"];
        let read: Vec<Position> = written.iter().map(|text| text.parse().expect(text)).collect();
        assert!(read.is_sorted_by(|a, b| a < b));
        let again: Vec<String> = read.iter().map(Position::to_string).collect();
        assert_eq!(again, written);
    }

    #[test]
    fn malformed_and_overflowing_positions_are_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "x",
            "1.",
            ".1",
            "1.-1",
            "1.2.3",
            "1e3",
            " 1",
            "18446744073709551616",
            "1.18446744073709551616",
        ] {
            assert_eq!(text.parse::<Position>(), Err(NotAPosition), "{text}");
        }
    }
}
