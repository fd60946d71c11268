//! JSON serialization that does not block async threads: long values are written on a blocking thread.

use std::io;
use std::sync::Arc;

use axum::body::Bytes;
use serde::Serialize;

/// Maximum length of JSON that is written on the calling thread.
pub(crate) const SHORT: usize = 32 << 10;

/// A writer that fails once the text exceeds [`SHORT`].
struct ShortText(Vec<u8>);

impl io::Write for ShortText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > SHORT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the JSON of a value; `None` if it is too long.
pub(crate) fn short_json(value: &impl Serialize) -> Option<Vec<u8>> {
    let mut text = ShortText(Vec::with_capacity(256));
    serde_json::to_writer(&mut text, value).ok().map(|()| text.0)
}

/// Returns the JSON of a value.
pub(crate) fn json(value: &impl Serialize) -> Bytes {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    // The text is retained, so release its spare capacity.
    text.shrink_to_fit();
    text.into()
}

/// Returns the JSON of a value that may be large; writes long JSON on a blocking thread.
pub(crate) async fn json_of<T: Serialize + Send + Sync + 'static>(value: Arc<T>) -> Bytes {
    if short_json(&*value).is_some() {
        return json(&*value);
    }
    let written = tokio::task::spawn_blocking(move || json(&*value));
    written.await.unwrap_or_default()
}
