//! `--events FILE`: writes every event as a line of JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::thread::JoinHandle;

use pirn::{BlockingEvents, SubscriptionItem};
use serde_json::json;

/// A thread that writes events to a file.
pub(super) struct Record {
    writer: JoinHandle<io::Result<()>>,
}

/// Opens the file and starts writing.
pub(super) fn start(path: &str, events: BlockingEvents) -> io::Result<Record> {
    let mut file = BufWriter::new(File::create(path)?);
    let writer = std::thread::Builder::new()
        .name("pirn-events".to_owned())
        .spawn(move || {
            let waiting = events.receiver().clone();
            for heard in events {
                match heard {
                    SubscriptionItem::Event(event) => serde_json::to_writer(&mut file, &*event)?,
                    SubscriptionItem::Lagged(count) => serde_json::to_writer(&mut file, &json!({ "missed": count }))?,
                }
                file.write_all(b"\n")?;
                // Flush when idle, so that the file is complete for a concurrent reader, and after the process is killed.
                if waiting.is_empty() {
                    file.flush()?;
                }
            }
            file.flush()
        })?;
    Ok(Record { writer })
}

impl Record {
    /// Waits until the last line is written.
    pub(super) fn finish(self) -> io::Result<()> {
        self.writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
    }
}
