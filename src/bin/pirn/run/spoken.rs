//! Replies as they come: whole lines, and the beginning of the next one.

use std::collections::BTreeMap;

/// What models have said so far in lines that are not over, by thread.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    open: BTreeMap<String, String>,
}

impl Spoken {
    /// A piece has come: the lines that are whole now. What would move a terminal's cursor is left out.
    pub(super) fn hear(&mut self, thread: &str, piece: &str) -> Vec<String> {
        let open = self.open.entry(thread.to_owned()).or_default();
        open.extend(piece.chars().filter(|c| *c == '\n' || !c.is_control()));
        let Some(end) = open.rfind('\n') else {
            return Vec::new();
        };
        let rest = open.split_off(end + 1);
        let whole = std::mem::replace(open, rest);
        whole.lines().map(str::to_owned).collect()
    }

    /// The line of this thread that is not over.
    pub(super) fn so_far(&self, thread: &str) -> Option<&str> {
        self.open
            .get(thread)
            .map(String::as_str)
            .filter(|line| !line.is_empty())
    }

    /// Ends the line of this thread.
    pub(super) fn end(&mut self, thread: &str) -> Option<String> {
        self.open.remove(thread).filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_threads_apart() {
        let mut spoken = Spoken::default();
        assert_eq!(spoken.hear("a", "one "), [""; 0]);
        assert_eq!(spoken.hear("b", "other"), [""; 0]);
        assert_eq!(spoken.so_far("a"), Some("one "));
        assert_eq!(spoken.hear("a", "line\nand\nmore"), ["one line", "and"]);
        assert_eq!(spoken.end("a").as_deref(), Some("more"));
        assert_eq!(spoken.end("a"), None);
        assert_eq!(spoken.end("b").as_deref(), Some("other"));
    }

    #[test]
    fn a_model_does_not_steer_the_terminal() {
        let mut spoken = Spoken::default();
        assert_eq!(spoken.hear("a", "\u{1b}[2Jred\r\u{7}\n"), ["[2Jred"]);
    }
}
