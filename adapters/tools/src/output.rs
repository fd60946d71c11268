//! The retained beginning of an output of any length.

use tokio::io::{AsyncRead, AsyncReadExt};

use pirn_core::thread::ToolResult;
use pirn_models::headers::Secrets;

/// Number of bytes per read.
const CHUNK: usize = 16 * 1024;

/// The beginning of an output.
#[derive(Debug)]
pub(super) struct TruncatedOutput {
    bytes: Vec<u8>,
    limit: usize,
    total: u64,
}

impl TruncatedOutput {
    /// Creates a buffer for the first `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            total: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.limit - self.bytes.len();
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns whether bytes were discarded.
    pub(super) fn is_cut(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// Returns the first `limit` bytes without the secrets. `self` must keep `secrets.longest()` bytes more than `limit`: a secret that
    /// starts before the limit is then complete.
    pub(super) fn without(self, secrets: &Secrets, limit: usize) -> Self {
        if secrets.longest() == 0 {
            return self;
        }
        let is_cut = self.is_cut();
        let mut bytes = self.bytes;
        if is_cut {
            bytes.truncate(whole_characters(&bytes));
        }
        let mut text = secrets.redact(String::from_utf8_lossy(&bytes).into_owned());
        if is_cut {
            text.truncate(text.len() - secrets.begun_in(&text));
        }
        let mut head = Self::new(limit);
        head.push(text.as_bytes());
        head.total += u64::from(is_cut);
        head
    }

    /// Reads until the end. Data beyond the limit is read and discarded, so that the writer is not blocked.
    pub(super) async fn read(mut self, mut from: impl AsyncRead + Unpin) -> std::io::Result<Self> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await? {
                0 => return Ok(self),
                count => self.push(&chunk[..count]),
            }
        }
    }

    /// Returns the text. A truncated text ends with a line about that. `is_whole`: the total size was counted.
    pub(super) fn into_text(self, is_whole: bool) -> String {
        let is_cut = self.is_cut();
        let mut bytes = self.bytes;
        if is_cut {
            bytes.truncate(whole_characters(&bytes));
        }
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if is_cut {
            text += &ToolResult::cut_note(bytes.len(), is_whole.then_some(self.total));
        }
        text
    }
}

/// Returns the length of the text without a truncated last character.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

/// Returns the last `limit` bytes of the input.
pub(super) async fn tail(mut from: impl AsyncRead + Unpin, limit: usize) -> std::io::Result<String> {
    let mut kept = Vec::new();
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk).await? {
            0 => break,
            count => {
                kept.extend_from_slice(&chunk[..count]);
                kept.drain(..kept.len().saturating_sub(limit));
            }
        }
    }
    // Remove a truncated character at the start.
    let begin = kept.iter().take(4).take_while(|byte| **byte & 0xC0 == 0x80).count();
    Ok(String::from_utf8_lossy(&kept[begin..]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// Reading from memory never blocks.
    fn block_on<T>(read: impl Future<Output = T>) -> T {
        read.now_or_never().expect("it does not wait")
    }

    fn head(limit: usize, text: &str) -> String {
        block_on(TruncatedOutput::new(limit).read(text.as_bytes()))
            .unwrap()
            .into_text(true)
    }

    #[test]
    fn an_output_within_the_limit_is_complete() {
        assert_eq!(head(4, "four"), "four");
        assert_eq!(head(1, ""), "");
    }

    #[test]
    fn an_output_over_the_limit_is_truncated_between_characters_with_a_note() {
        assert_eq!(head(4, "fours"), "four\n[output cut: the first 4 bytes of 5]");
        assert_eq!(head(2, "aéé"), "a\n[output cut: the first 1 bytes of 5]");
        let long = "x".repeat(3 * CHUNK);
        assert!(head(10, &long).ends_with(&format!("of {}]", 3 * CHUNK)));
    }

    #[test]
    fn invalid_utf8_is_shown_as_replacement_characters() {
        let head = block_on(TruncatedOutput::new(9).read(&b"a\xffb"[..])).unwrap();
        assert_eq!(head.into_text(true), "a\u{fffd}b");
    }

    #[test]
    fn a_truncated_output_contains_no_part_of_a_secret() {
        let secret = "s3cr3t-0123456789";
        let value = reqwest::header::HeaderValue::from_static("Bearer s3cr3t-0123456789");
        let secrets = Secrets::of([&value].into_iter());
        let said = format!("a {secret} b {secret}{secret} c {secret}");
        for limit in 1..said.len() + 2 {
            let mut head = TruncatedOutput::new(limit + secrets.longest());
            head.push(said.as_bytes());
            let text = head.without(&secrets, limit).into_text(false);
            assert!(!text.contains("s3c") && !text.contains("789"), "{limit}: {text}");
            assert_eq!(text.starts_with("a *** b"), limit >= "a *** b".len(), "{limit}: {text}");
        }
        let mut whole = TruncatedOutput::new(100 + secrets.longest());
        whole.push(said.as_bytes());
        assert_eq!(whole.without(&secrets, 100).into_text(true), "a *** b ****** c ***");
    }

    #[test]
    fn a_tail_is_the_last_bytes_of_the_output() {
        let long = format!("{}é!", "x".repeat(3 * CHUNK));
        assert_eq!(block_on(tail(long.as_bytes(), 4)).unwrap(), "xé!");
        assert_eq!(block_on(tail(long.as_bytes(), 2)).unwrap(), "!");
        assert_eq!(block_on(tail(&b"all"[..], 10)).unwrap(), "all");
    }
}
