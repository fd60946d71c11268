//! Detection of tools that can only run as tasks. rmcp drops the field `execution.taskSupport` of a tool list, so the field is
//! read from the server's output before rmcp parses it.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum length of a parsed line in bytes. A longer line is not parsed: `pages::every_page` limits lists to this size.
const LONGEST: usize = 16 << 20;

/// Names of the tools that can only run as tasks.
#[derive(Clone, Default)]
pub(super) struct TaskOnlyTools(Arc<Mutex<BTreeSet<String>>>);

impl TaskOnlyTools {
    /// Returns true if the tool can only run as a task.
    pub(super) fn contains(&self, tool: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    fn read(&self, line: &[u8]) {
        const MARK: &[u8] = b"taskSupport";
        if !line.windows(MARK.len()).any(|part| part == MARK) {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        let tools = message.pointer("/result/tools").and_then(Value::as_array);
        let needs = |tool: &&Value| tool.pointer("/execution/taskSupport").and_then(Value::as_str) == Some("required");
        let names = tools.into_iter().flatten().filter(needs);
        let names = names.filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }
}

/// Reader of a server's output that also searches it for such tools.
pub(super) struct TaskFlagReader<R> {
    output: R,
    line: Vec<u8>,
    tools: TaskOnlyTools,
}

impl<R> TaskFlagReader<R> {
    pub(super) fn new(output: R, tools: TaskOnlyTools) -> Self {
        Self {
            output,
            line: Vec::new(),
            tools,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() <= LONGEST {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                self.tools.read(&self.line);
                self.line.clear();
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for TaskFlagReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.output).poll_read(context, buffer);
        if let Poll::Ready(Ok(())) = &read {
            let new = buffer.filled().get(before..).unwrap_or_default();
            self.take(new);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_requires_a_task_is_recognized_in_any_chunking() {
        let list = br#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"},{"name":"b","execution":{"taskSupport":"required"}},{"name":"c","execution":{"taskSupport":"optional"}}]}}"#;
        for size in [1, 7, list.len() + 1] {
            let tools = TaskOnlyTools::default();
            let mut over = TaskFlagReader::new(tokio::io::empty(), tools.clone());
            let lines = [b"not json, and taskSupport\n".as_slice(), list, b"\n"].concat();
            lines.chunks(size).for_each(|chunk| over.take(chunk));
            assert_eq!(["a", "b", "c"].map(|tool| tools.contains(tool)), [false, true, false]);
        }
    }
}
