//! Limits on texts.

use std::time::Duration;

/// Limits on an expression, which is evaluated in place: other threads wait meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressionLimits {
    /// Real time of one evaluation (default 50 ms).
    pub time: Duration,
    /// Bytes that the values of all compiled expressions and one evaluation may take (default 64 MiB).
    pub memory: usize,
    /// Bytes of stack (default 256 KiB).
    pub stack: usize,
    /// Compiled texts that are kept (default 4096); one more, and all are compiled anew when next used.
    pub cached: usize,
}

impl Default for ExpressionLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(50),
            memory: 64 << 20,
            stack: 256 << 10,
            cached: 4096,
        }
    }
}

/// Limits on a run of CODE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLimits {
    /// Real time (default 5 s).
    pub time: Duration,
    /// Bytes that its values may take (default 64 MiB).
    pub memory: usize,
    /// Bytes of stack (default 256 KiB).
    pub stack: usize,
}

impl Default for CodeLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(5),
            memory: 64 << 20,
            stack: 256 << 10,
        }
    }
}
