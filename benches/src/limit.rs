//! Limits of Pirn's times, and checks of them.

use crate::processes::Measured;
use crate::sides;
use crate::workload::Workload;

/// Maximum time of a side. A multiple is the median of the processes' ratios, each by the fastest rounds of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Time of graph-flow.
    GraphFlow,
    /// Multiple of the time of raw tokio.
    TimesRaw(f64),
    /// Multiple of Pirn's time without a subscriber.
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

    /// Returns whether the median ratio of a side is within the limit; none if the reference side was not measured.
    pub fn is_kept(self, measured: &Measured, side: &str) -> Option<bool> {
        let (ratios, most) = match self {
            Self::GraphFlow => (measured.ratios(side, "graph-flow")?, 1.0),
            Self::TimesRaw(most) => (measured.ratios_to_raw(side)?, most),
            Self::TimesUnheard(most) => (measured.ratios(side, sides::PIRN)?, most),
            Self::Us(us) => return Some(measured.median(side) <= us),
        };
        Some(ratios.median <= most)
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
    use crate::compare::{Row, Times};

    fn measured(workload: Workload, us: &[f64]) -> Measured {
        let names = ["raw tokio", sides::PIRN, sides::HEARD, "graph-flow 0.8.1"];
        let times = names.iter().zip(us).map(|(side, us)| Times::of(side, vec![*us]));
        let row = Row {
            workload,
            part: String::new(),
            times: times.collect(),
        };
        Measured { rows: vec![row] }
    }

    fn kept(workload: Workload, us: [f64; 4], side: &str) -> Vec<Option<bool>> {
        let measured = measured(workload, &us);
        let limits = Limit::of(workload, "", side).iter();
        limits.map(|limit| limit.is_kept(&measured, side)).collect()
    }

    #[test]
    fn a_time_equal_to_the_limit_passes() {
        let fork = Workload::Fork(100);
        assert_eq!(
            kept(fork, [10.0, 33.0, 0.0, 33.0], sides::PIRN),
            [Some(true), Some(true)]
        );
        assert_eq!(
            kept(fork, [10.0, 33.1, 0.0, 40.0], sides::PIRN),
            [Some(false), Some(true)]
        );
        assert_eq!(
            kept(fork, [10.0, 30.0, 0.0, 29.0], sides::PIRN),
            [Some(true), Some(false)]
        );
    }

    #[test]
    fn a_subscriber_is_compared_with_no_subscriber() {
        let chain = Workload::Chain(1_000);
        assert_eq!(kept(chain, [1.0, 10.0, 30.0, 9.0], sides::HEARD), [Some(true)]);
        assert_eq!(kept(chain, [1.0, 10.0, 30.1, 99.0], sides::HEARD), [Some(false)]);
    }

    #[test]
    fn without_graph_flow_times_its_limit_is_not_checked() {
        let chain = Workload::Chain(1_000);
        assert_eq!(
            Limit::GraphFlow.is_kept(&measured(chain, &[1.0, 2.0]), sides::PIRN),
            None
        );
    }

    #[test]
    fn the_median_of_the_processes_decides() {
        let fork = Workload::Fork(100);
        let row = |pirn: f64| measured(fork, &[1.0, pirn]).rows.remove(0);
        let of = |ratios: [f64; 3]| Measured {
            rows: ratios.map(row).to_vec(),
        };
        assert_eq!(
            Limit::TimesRaw(3.3).is_kept(&of([3.0, 9.0, 3.3]), sides::PIRN),
            Some(true)
        );
        assert_eq!(
            Limit::TimesRaw(3.3).is_kept(&of([1.0, 3.4, 3.4]), sides::PIRN),
            Some(false)
        );
    }
}
