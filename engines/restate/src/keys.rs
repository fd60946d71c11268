//! Keys of a run's state. Numbers are padded: the text order of keys is the order of steps and of due times.

pub(crate) const HEAD: &str = "head";
/// Small contents of the run's first commit.
pub(crate) const BEGUN: &str = "begun";
pub(crate) const SNAPSHOT: &str = "snapshot";
pub(crate) const RECORDS: &str = "record ";
pub(crate) const NAMES: &str = "name ";
pub(crate) const TIMERS: &str = "timer ";

pub(crate) fn record(step: u64) -> String {
    // 20 digits hold every `u64`.
    format!("{RECORDS}{step:020}")
}

pub(crate) fn name(number: u64) -> String {
    format!("{NAMES}{number:020}")
}

pub(crate) fn timer(due: u64, effect: &str) -> String {
    format!("{TIMERS}{due:020} {effect}")
}

/// Parses the due time and the effect from the key of a timer.
pub(crate) fn timer_of(key: &str) -> Option<(u64, String)> {
    // The due time has no space, so the rest is the effect, also if that has spaces.
    let (due, effect) = key.strip_prefix(TIMERS)?.split_once(' ')?;
    Some((due.parse().ok()?, effect.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_their_numbers() {
        let steps = [0, 1, 9, 10, 99, 100, 1 << 40, u64::MAX];
        assert!(steps.windows(2).all(|pair| record(pair[0]) < record(pair[1])));
        assert!(timer(9, "z") < timer(10, "a"));
        assert_eq!(timer_of(&timer(7, "a run.1 2")), Some((7, "a run.1 2".to_owned())));
    }
}
