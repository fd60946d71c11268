//! Display of models' replies by thread: the main thread's as it arrives, a branch's when its node has ended, and only the length
//! for a triggered sub-workflow.

use super::line_buffer::LineBuffer;
use super::meter::grouped;

/// Maximum number of lines of a branch's reply.
const FOLDED: usize = 4;
/// Maximum bytes of a reply that are buffered until it is shown.
const MAX_KEPT: usize = 256 * 1024;

/// The way in which a thread's replies are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Manner {
    /// The reply is shown while its pieces arrive.
    #[default]
    Live,
    /// The first lines of the reply are shown when the node has ended.
    Folded,
    /// Only the length of the reply is shown.
    Counted,
}

/// The unfinished reply of one thread.
#[derive(Debug, Default)]
pub(super) struct Reply {
    manner: Manner,
    lines: LineBuffer,
    kept: Vec<String>,
    kept_bytes: usize,
    characters: u64,
}

impl Reply {
    pub(super) fn new(manner: Manner) -> Self {
        Self {
            manner,
            ..Self::default()
        }
    }

    /// Adds a piece, and returns the lines to print now.
    pub(super) fn push(&mut self, piece: &str) -> Vec<String> {
        self.characters += piece.chars().count() as u64;
        let whole = self.lines.push(piece);
        self.take_in(whole)
    }

    fn take_in(&mut self, whole: Vec<String>) -> Vec<String> {
        match self.manner {
            Manner::Live => return whole,
            Manner::Counted => {}
            Manner::Folded => {
                for line in whole {
                    self.kept_bytes += line.len();
                    if self.kept_bytes <= MAX_KEPT {
                        self.kept.push(line);
                    }
                }
            }
        }
        Vec::new()
    }

    /// Discards the reply so far, because the model restarts it.
    pub(super) fn restart(&mut self) -> Vec<String> {
        let begun = self.lines.take();
        let is_live = self.manner == Manner::Live;
        *self = Self::new(self.manner);
        let void = begun.filter(|_| is_live).map(|line| format!("{line} ... (retried)"));
        void.into_iter().collect()
    }

    /// Ends the reply when its node has ended, and returns the remaining lines to print.
    pub(super) fn finish(&mut self) -> Vec<String> {
        let rest: Vec<String> = self.lines.take().into_iter().collect();
        let mut shown = self.take_in(rest);
        let characters = std::mem::take(&mut self.characters);
        self.kept_bytes = 0;
        let kept = std::mem::take(&mut self.kept);
        match self.manner {
            Manner::Counted if characters > 0 => {
                shown.push(format!("({} characters; --verbose shows them)", grouped(characters)));
            }
            Manner::Live | Manner::Counted => {}
            Manner::Folded => {
                let more = kept.len().saturating_sub(FOLDED);
                shown.extend(kept.into_iter().take(FOLDED));
                if more > 0 {
                    let plural = if more == 1 { "" } else { "s" };
                    shown.push(format!("({more} more line{plural}; --verbose shows them)"));
                }
            }
        }
        shown
    }

    /// Returns the number of characters that were not shown.
    pub(super) fn hidden(&self) -> u64 {
        if self.manner == Manner::Live {
            0
        } else {
            self.characters
        }
    }

    /// Returns the unfinished line.
    pub(super) fn unfinished(&self) -> Option<&str> {
        self.lines.unfinished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_reply_is_shown_line_by_line_and_its_last_line_at_the_end() {
        let mut reply = Reply::new(Manner::Live);
        assert_eq!(reply.push("one\ntw"), ["one"]);
        assert_eq!(reply.unfinished(), Some("tw"));
        assert_eq!(reply.finish(), ["tw"]);
    }

    #[test]
    fn a_folded_reply_is_shown_when_complete_with_the_number_of_omitted_lines() {
        let mut reply = Reply::new(Manner::Folded);
        assert_eq!(reply.push("1\n2\n3\n4\n5\n6"), [""; 0]);
        assert_eq!(reply.hidden(), 11);
        assert_eq!(
            reply.finish(),
            ["1", "2", "3", "4", "(2 more lines; --verbose shows them)"]
        );
        assert_eq!(reply.finish(), [""; 0], "once");
    }

    #[test]
    fn a_counted_reply_shows_only_its_number_of_characters() {
        let mut reply = Reply::new(Manner::Counted);
        assert_eq!(reply.push("äb\nc"), [""; 0]);
        assert_eq!(reply.finish(), ["(4 characters; --verbose shows them)"]);
    }

    #[test]
    fn a_restarted_reply_discards_its_earlier_text() {
        let mut live = Reply::new(Manner::Live);
        live.push("half");
        assert_eq!(live.restart(), ["half ... (retried)"]);
        let mut folded = Reply::new(Manner::Folded);
        folded.push("old\n");
        assert_eq!(folded.restart(), [""; 0]);
        folded.push("new");
        assert_eq!(folded.finish(), ["new"]);
    }
}
