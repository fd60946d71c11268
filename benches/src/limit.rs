//! Limits of Pirn's times, and checks of them.

use crate::compare::{Row, Times};
use crate::sides;
use crate::workload::Workload;

/// Maximum time of a side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Time of graph-flow, by the fastest round.
    GraphFlow,
    /// Multiple of the time of raw tokio, by the fastest round.
    TimesRaw(f64),
    /// Multiple of Pirn's time without a subscriber, by the fastest round.
    TimesUnheard(f64),
    /// Microseconds, by the median.
    Us(f64),
}

impl Limit {
    /// Returns the limits of a side for a workload, or for a `part` of it.
    pub fn of(workload: Workload, part: &str, side: &str) -> &'static [Self] {
        match (side, workload) {
            (sides::HEARD, Workload::Chain(_) | Workload::Fork(_)) => &[Self::TimesUnheard(3.0)],
            // No limit: the way to an arbiter and back costs two wakes, which dominate a small fork.
            (sides::PIRN, Workload::Fork(8)) => &[],
            (sides::LOCAL, Workload::Fork(8)) => &[Self::GraphFlow],
            (sides::PIRN | sides::LOCAL, _) => match workload {
                Workload::Chain(_) => &[Self::GraphFlow],
                Workload::Fork(10_000..) | Workload::Map(_) => &[Self::TimesRaw(3.3)],
                Workload::Fork(_) => &[Self::TimesRaw(3.3), Self::GraphFlow],
                Workload::Any(_) if part == "decided" => &[Self::Us(150.0)],
                Workload::Any(_) => &[Self::Us(1_000.0)],
                Workload::Talk(_) | Workload::Events(..=1_000) => &[Self::TimesRaw(3.0)],
                Workload::History(_) => &[],
                Workload::Events(_) => &[Self::TimesRaw(8.0)],
                Workload::Cpu(_) => &[Self::TimesRaw(1.15)],
                Workload::Runs(_) => &[Self::TimesRaw(4.0)],
            },
            _ => &[],
        }
    }

    /// Returns whether `times` is within the limit; none if the reference side was not measured.
    pub fn is_kept(self, row: &Row, times: &Times) -> Option<bool> {
        let side = |name: &str| row.times.iter().find(|times| times.side.starts_with(name));
        let most = match self {
            Self::GraphFlow => side("graph-flow")?.min(),
            Self::TimesRaw(most) => most * row.times.first()?.min(),
            Self::TimesUnheard(most) => most * side(sides::PIRN)?.min(),
            Self::Us(us) => return Some(times.median() <= us),
        };
        Some(times.min() <= most)
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GraphFlow => f.write_str("graph-flow"),
            Self::TimesRaw(times) => write!(f, "{times} x raw"),
            Self::TimesUnheard(times) => write!(f, "{times} x without a subscriber"),
            Self::Us(us) => write!(f, "{us} us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: Workload, us: [f64; 4]) -> Row {
        let names = ["raw tokio", sides::PIRN, sides::HEARD, "graph-flow 0.8.1"];
        let times = names.iter().zip(us).map(|(side, us)| Times {
            side: (*side).to_owned(),
            us: vec![us],
        });
        Row {
            workload,
            part: "",
            times: times.collect(),
        }
    }

    fn kept(workload: Workload, us: [f64; 4], place: usize) -> Vec<Option<bool>> {
        let row = row(workload, us);
        let times = &row.times[place];
        let limits = Limit::of(workload, "", &times.side).iter();
        limits.map(|limit| limit.is_kept(&row, times)).collect()
    }

    #[test]
    fn a_time_equal_to_the_limit_passes() {
        let fork = Workload::Fork(100);
        assert_eq!(kept(fork, [10.0, 33.0, 0.0, 33.0], 1), [Some(true), Some(true)]);
        assert_eq!(kept(fork, [10.0, 33.1, 0.0, 40.0], 1), [Some(false), Some(true)]);
        assert_eq!(kept(fork, [10.0, 30.0, 0.0, 29.0], 1), [Some(true), Some(false)]);
    }

    #[test]
    fn a_subscriber_is_compared_with_no_subscriber() {
        let chain = Workload::Chain(1_000);
        assert_eq!(kept(chain, [1.0, 10.0, 30.0, 9.0], 2), [Some(true)]);
        assert_eq!(kept(chain, [1.0, 10.0, 30.1, 99.0], 2), [Some(false)]);
    }

    #[test]
    fn without_graph_flow_times_its_limit_is_not_checked() {
        let chain = Workload::Chain(1_000);
        let mut row = row(chain, [1.0, 2.0, 3.0, 4.0]);
        row.times.truncate(2);
        assert_eq!(Limit::GraphFlow.is_kept(&row, &row.times[1]), None);
    }
}
