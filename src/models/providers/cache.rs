//! The things that a provider's cache is told of a request.

use pirn_actors::ports::ModelCall;

/// The longest key that is sent, bytes.
const LONGEST_KEY: usize = 64;

/// For one request.
#[derive(Clone, Copy)]
pub(super) struct CacheHints<'a> {
    /// The thread: its requests begin alike. Of a long id the end, which tells threads of a run apart.
    pub(super) key: &'a str,
    /// The request before had a mark after so many messages.
    pub(super) repeated: usize,
    /// So many messages come before the pinned context, which stands elsewhere in the next request; all where nothing is pinned.
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
