//! Splits the bytes of a reply into the frames of its protocol: server-sent events, or one JSON document per line.
//!
//! Chunk boundaries are arbitrary: they may split frames and characters.

/// The format of a stream of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events.
    Events,
    /// Each line is a frame (JSON lines).
    Lines,
}

/// A frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamFrame {
    /// The name of a server-sent event.
    pub(super) event: Option<String>,
    /// Data of the frame.
    pub(super) data: String,
}

/// Incremental splitter of bytes into frames.
pub(super) struct Frames {
    framing: Framing,
    bytes: Vec<u8>,
    event: Option<String>,
    data: Option<String>,
    /// True once a line has been taken.
    has_begun: bool,
    /// True once a line is not UTF-8. No frame follows.
    is_malformed: bool,
    /// True if data has arrived since the last call of [`Frames::has_new_data`].
    has_new_data: bool,
}

impl Frames {
    pub(super) fn new(framing: Framing) -> Self {
        Self {
            framing,
            bytes: Vec::new(),
            event: None,
            data: None,
            has_begun: false,
            is_malformed: false,
            has_new_data: false,
        }
    }

    /// Returns whether data has arrived since the last call, also if its frame is incomplete. Comments and blank lines are not data.
    pub(super) fn has_new_data(&mut self) -> bool {
        std::mem::take(&mut self.has_new_data)
    }

    /// Returns the number of buffered bytes of an incomplete frame.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() + self.data.as_ref().map_or(0, String::len)
    }

    /// Returns whether a line is not UTF-8. The frames before it have been returned.
    pub(super) fn is_malformed(&self) -> bool {
        self.is_malformed
    }

    /// Returns the frames that these bytes complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<StreamFrame> {
        // Search only the new bytes for the end, so that a long line in many pieces takes linear time.
        let before = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.note_partial_line();
            return Vec::new();
        };
        let end = before + end;
        let rest = self.bytes.split_off(end + 1);
        let whole = std::mem::replace(&mut self.bytes, rest);
        let mut frames = Vec::new();
        // Line by line: whether the frames before a malformed line count must not depend on the chunk in which that line arrives.
        for line in whole[..whole.len() - 1].split(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line));
            self.is_malformed |= line.is_err();
            match line {
                Ok(line) if !self.is_malformed => frames.extend(self.line(line)),
                Ok(_) | Err(_) => break,
            }
        }
        self.note_partial_line();
        frames
    }

    /// Notes data in the incomplete last line: a long line may take longer than the time limit of a piece.
    fn note_partial_line(&mut self) {
        self.has_new_data |= match self.framing {
            Framing::Events => self.bytes.starts_with(b"data"),
            Framing::Lines => !self.bytes.trim_ascii_start().is_empty(),
        };
    }

    /// Returns the remaining frames at the end of the input.
    pub(super) fn end(&mut self) -> Vec<StreamFrame> {
        let mut frames = self.take(b"\n");
        if !self.is_malformed {
            frames.extend(self.ended());
        }
        frames
    }

    fn line(&mut self, line: &str) -> Option<StreamFrame> {
        // A stream may begin with a byte order mark.
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = line.strip_prefix('\u{feff}').filter(|_| is_first).unwrap_or(line);
        if self.framing == Framing::Lines {
            let data = line.trim();
            self.has_new_data |= !data.is_empty();
            return (!data.is_empty()).then(|| StreamFrame {
                event: None,
                data: data.to_owned(),
            });
        }
        if line.is_empty() {
            return self.ended();
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.event = Some(value.to_owned()),
            "data" => {
                self.has_new_data = true;
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
            }
            // Ignores comments, ids and retry times.
            _ => {}
        }
        None
    }

    fn ended(&mut self) -> Option<StreamFrame> {
        let event = self.event.take();
        let data = self.data.take()?;
        Some(StreamFrame { event, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(framing: Framing, pieces: &[&[u8]]) -> Vec<StreamFrame> {
        let mut frames = Frames::new(framing);
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(frames.take(piece));
        }
        all.extend(frames.end());
        all
    }

    const EVENTS: &str =
        ": hello\n\ndata: {\"a\": \"é你\"}\n\nevent: x\r\ndata: 1\r\ndata:2\r\n\r\nid: 3\n\ndata: last";

    #[test]
    fn events_and_lines_are_split_into_frames() {
        let frame = |event: Option<&str>, data: &str| StreamFrame {
            event: event.map(str::to_owned),
            data: data.to_owned(),
        };
        let expected = [
            frame(None, "{\"a\": \"é你\"}"),
            frame(Some("x"), "1\n2"),
            frame(None, "last"),
        ];
        assert_eq!(all(Framing::Events, &[EVENTS.as_bytes()]), expected);
        let lines = all(Framing::Lines, &[b"{\"a\": 1}\n\n", b" {\"b\"", b": 2}\r\n{}"]);
        assert_eq!(lines, ["{\"a\": 1}", "{\"b\": 2}", "{}"].map(|data| frame(None, data)));
    }

    #[test]
    fn a_byte_order_mark_before_the_first_frame_is_skipped() {
        for framing in [Framing::Events, Framing::Lines] {
            let plain = "data: {}\n\ndata: \u{feff}\n\n";
            let marked = format!("\u{feff}{plain}");
            assert_eq!(all(framing, &[marked.as_bytes()]), all(framing, &[plain.as_bytes()]));
        }
    }

    #[test]
    fn comments_and_blank_lines_are_not_data() {
        for (framing, bytes, expected) in [
            (Framing::Events, &b": keep-alive\n\n"[..], false),
            (Framing::Events, b": data", false),
            (Framing::Events, b"\n\r\n", false),
            (Framing::Events, b"event: ping\nid: 1\nretry: 5\n", false),
            (Framing::Events, b"data: a", true),
            (Framing::Events, b": x\n\ndata: a\n", true),
            (Framing::Lines, b"\n \n ", false),
            (Framing::Lines, b"{\"a", true),
            (Framing::Lines, b"{}\n", true),
        ] {
            let mut frames = Frames::new(framing);
            frames.take(bytes);
            assert_eq!(frames.has_new_data(), expected, "{}", bytes.escape_ascii());
            assert!(!frames.has_new_data(), "once");
        }
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_chunk_boundaries(cuts in prop::collection::btree_set(0..EVENTS.len(), 0..9), framing in prop::bool::ANY) {
            let framing = if framing { Framing::Events } else { Framing::Lines };
            let bytes = EVENTS.as_bytes();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(all(framing, &pieces), all(framing, &[bytes]));
        }
    }
}
