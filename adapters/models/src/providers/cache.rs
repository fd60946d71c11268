//! Hints about a request for the provider's cache.

use pirn_actors::ports::ModelCall;

/// Maximum length of a key in bytes.
const LONGEST_KEY: usize = 64;

/// Cache hints for one request.
#[derive(Clone, Copy)]
pub(super) struct CacheHints<'a> {
    /// The thread; requests of a thread share a prefix. A long id is shortened to its end, which distinguishes the threads of a
    /// run.
    pub(super) key: &'a str,
    /// Number of messages after which the preceding request had a cache mark.
    pub(super) repeated: usize,
    /// Number of messages before the pinned context, which moves in the next request; all messages if nothing is pinned.
    pub(super) stable: usize,
}

impl<'a> CacheHints<'a> {
    pub(super) fn of(call: &'a ModelCall) -> Self {
        let thread = &*call.goes_on_from;
        let from = thread.len().saturating_sub(LONGEST_KEY);
        let from = (from..=thread.len()).find(|from| thread.is_char_boundary(*from));
        let request = &call.request;
        Self {
            key: from.and_then(|from| thread.get(from..)).unwrap_or_default(),
            repeated: request.repeated,
            stable: request.inserted_at.unwrap_or(request.messages.len()),
        }
    }
}
