//! Claims: ownership of runs in a store that several processes share.

use crate::error::Pending;

/// Claims on the runs of a shared store. The process that has claimed a run owns it.
///
/// 1. A run is claimed by at most one process. The process extends its claims while it lives. If it dies, or hangs for longer
///    than a claim lasts, other processes claim its runs.
/// 2. A write with an expired claim is refused ([`StoreError::RunLost`](crate::StoreError::RunLost)), and so is
///    a write to a run that another process has claimed
///    ([`StoreError::RunHeld`](crate::StoreError::RunHeld)).
/// 3. A run that has ended has no claim.
/// 4. Before it performs an effect, a process checks its claim ([`Claims::verify`]): the process may have been paused.
pub trait Claims: Send + Sync + 'static {
    /// Claims a run for this process, or fails with [`StoreError::RunHeld`](crate::StoreError::RunHeld).
    fn claim(&self, run: &str) -> Pending<()>;

    /// Checks that this process's claim on a run is valid. Decided by the local clock, and by the store if the claim is about to
    /// expire. Fails with [`StoreError::RunLost`](crate::StoreError::RunLost). The default is for claims without an expiry.
    fn verify(&self, _run: &str) -> Pending<()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Releases a run, after all commands given before. Other processes may claim it after `after_ms` milliseconds. Does nothing
    /// if this process has not claimed the run.
    fn release(&self, run: &str, after_ms: u64);

    /// Claims runs without an owner for this process, until it owns `at_most` runs. The initial limit is 0. The claimed runs are
    /// returned by [`Claims::assigned`].
    fn carry(&self, at_most: usize);

    /// Waits for the next assignment of this process.
    fn assigned(&self) -> Pending<Assignment>;

    /// Waits until it is the run's turn in its session. One run has the turn, across all processes. The turn ends when the run
    /// ends or writes the session.
    fn turn(&self, session: &str, run: &str) -> Pending<()>;

    /// Waits until a run has ended or is removed, whichever process owns it.
    fn ended(&self, run: &str) -> Pending<()>;

    /// Sends an input to a run through the process that owns it. Returns the answer; none if the run has no owner.
    fn tell(&self, run: &str, request: String) -> Pending<Option<String>>;

    /// Returns the base URL of the service in the process that owns a run; none if that is this process, or if the run has no owner,
    /// or its owner no such URL ([`advertised_in`]). The default returns `None`.
    fn owner_address(&self, _run: &str) -> Pending<Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Answers a request ([`Assignment::Tell`]).
    fn answer(&self, request: u64, answer: String);

    /// Sets the value of a name if it has none, and returns the name's value, which all processes agree on. Only the newest `most`
    /// names are stored. The default stores no names and returns `value`.
    fn settle(&self, _name: &str, value: String, _most: usize) -> Pending<String> {
        Box::pin(std::future::ready(Ok(value)))
    }

    /// Deletes a name if its value is `value`.
    fn unsettle(&self, _name: &str, _value: String) -> Pending<()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Returns the label of this process in its claims: `name` (default: the process id), and the base URL of its service. A URL in the label
/// needs no field in the server's schema, and expires with the claims.
pub fn process_label(name: Option<String>, address: Option<&str>) -> String {
    let name = name.unwrap_or_else(|| format!("pid {}", std::process::id()));
    match address {
        Some(address) => format!("{name} {address}"),
        None => name,
    }
}

/// Returns the base URL in the name of a process.
pub fn advertised_in(name: &str) -> Option<&str> {
    // The last one: a label that the user has set may contain another URL.
    let is_url = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    name.split(' ').rfind(is_url)
}

/// Work for a process that shares a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Resume this run. It had no owner, and is claimed for this process.
    Run(String),
    /// Stop this run, which another process may have claimed, and release it.
    Lost(String),
    /// Send an input to this run and return its answer.
    Tell {
        /// Number of the request, for [`Claims::answer`].
        request: u64,
        /// Run that receives the input.
        run: String,
        /// Request, as given to [`Claims::tell`].
        body: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_contains_the_address_of_its_service() {
        let named = |label: &str, address| format!("{} 1a2b3c4d", process_label(Some(label.to_owned()), address));
        let address = "http://svc-a:7474/pirn";
        assert_eq!(advertised_in(&named("pid 7", Some(address))), Some(address));
        assert_eq!(advertised_in(&named("at https://other", Some(address))), Some(address));
        assert_eq!(advertised_in(&named("pid 7", None)), None);
    }
}
