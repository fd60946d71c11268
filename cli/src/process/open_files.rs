//! The limit of files and sockets that this process may have open.

/// Highest limit that is set. Some programs close every possible file number when they start, and tools inherit the limit.
const MOST: u64 = 65_536;

/// Raises the soft limit towards the hard one. Shells and service managers often set a soft limit of 1,024, which a thousand clients
/// exhaust.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(MOST, |maximum| maximum.min(MOST));
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit {
            current: Some(most),
            maximum: limit.maximum,
        };
        // On failure the limit stays, and `max_connections` follows it.
        let _: rustix::io::Result<()> = setrlimit(Resource::Nofile, raised);
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() {}

/// Returns the maximum number of clients' connections. The remaining files are for the store, models, tools and scripts: without them
/// clients could make every run fail.
pub(crate) fn max_connections() -> usize {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    let limit = None;
    limit.map_or(usize::MAX, connections_of)
}

fn connections_of(files: u64) -> usize {
    let reserved = (files / 4).max(128);
    // A service without any connection could not be reached at all.
    usize::try_from(files.saturating_sub(reserved).max(16)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_files_but_at_least_128_are_reserved_for_runs() {
        for (files, connections) in [(64, 16), (256, 128), (1_024, 768), (65_536, 49_152)] {
            assert_eq!(connections_of(files), connections, "{files}");
        }
    }
}
