//! Splits a text that arrives in pieces into lines.

/// The unfinished last line of a text.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    open: String,
}

impl LineBuffer {
    /// Adds a piece, and returns the lines that are complete now.
    pub(super) fn push(&mut self, piece: &str) -> Vec<String> {
        self.open.push_str(piece);
        let Some(end) = self.open.rfind('\n') else {
            return Vec::new();
        };
        let rest = self.open.split_off(end + 1);
        let whole = std::mem::replace(&mut self.open, rest);
        whole.lines().map(str::to_owned).collect()
    }

    /// Returns the unfinished line.
    pub(super) fn unfinished(&self) -> Option<&str> {
        Some(self.open.as_str()).filter(|line| !line.is_empty())
    }

    /// Removes and returns the unfinished line.
    pub(super) fn take(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.open)).filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_are_returned() {
        let mut lines = LineBuffer::default();
        assert_eq!(lines.push("one "), [""; 0]);
        assert_eq!(lines.unfinished(), Some("one "));
        assert_eq!(lines.push("line\nand\nmore"), ["one line", "and"]);
        assert_eq!(lines.take().as_deref(), Some("more"));
        assert_eq!(lines.take(), None);
    }
}
