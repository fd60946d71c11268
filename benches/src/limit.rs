//! What Pirn must reach, and whether it does.

use crate::compare::{Row, Times};
use crate::workload::Workload;

/// The most that Pirn may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Not more than graph-flow, by the fastest round.
    GraphFlow,
    /// So many times what raw tokio takes, by the fastest round.
    TimesRaw(f64),
    /// So many microseconds in the middle round.
    Us(f64),
}

impl Limit {
    /// What holds for a workload, or for the `part` of it that was measured.
    pub fn of(workload: Workload, part: &str) -> &'static [Self] {
        match workload {
            Workload::Chain(_) => &[Self::GraphFlow],
            Workload::Fork(_) => &[Self::TimesRaw(3.3), Self::GraphFlow],
            Workload::Any(_) if part == "decided" => &[Self::Us(100.0)],
            Workload::Any(_) => &[Self::Us(1_000.0)],
            Workload::Talk(_) | Workload::History(_) => &[Self::TimesRaw(2.0)],
            Workload::Events(_) => &[Self::TimesRaw(3.0)],
            Workload::Cpu(_) => &[Self::TimesRaw(1.15)],
            Workload::Runs(_) => &[Self::TimesRaw(4.0)],
        }
    }

    /// Whether `pirn` keeps it; none where nobody stands beside to compare with.
    pub fn is_kept(self, row: &Row, pirn: &Times) -> Option<bool> {
        let most = match self {
            Self::GraphFlow => {
                let peer = row.times.iter().find(|times| times.side.starts_with("graph-flow"));
                peer?.min()
            }
            Self::TimesRaw(times) => times * row.times.first()?.min(),
            Self::Us(us) => return Some(pirn.median() <= us),
        };
        Some(pirn.min() <= most)
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GraphFlow => f.write_str("graph-flow"),
            Self::TimesRaw(times) => write!(f, "{times} x raw"),
            Self::Us(us) => write!(f, "{us} us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: Workload, us: [f64; 3]) -> Row {
        let names = ["raw tokio", "pirn", "graph-flow 0.8.1"];
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

    #[test]
    fn a_limit_is_kept_up_to_itself() {
        let fork = Workload::Fork(8);
        let kept = |us: [f64; 3]| {
            let row = row(fork, us);
            let limits = Limit::of(fork, "").iter();
            limits
                .map(|limit| limit.is_kept(&row, &row.times[1]))
                .collect::<Vec<_>>()
        };
        assert_eq!(kept([10.0, 33.0, 33.0]), [Some(true), Some(true)]);
        assert_eq!(kept([10.0, 33.1, 40.0]), [Some(false), Some(true)]);
        assert_eq!(kept([10.0, 30.0, 29.0]), [Some(true), Some(false)]);
    }

    #[test]
    fn without_graph_flow_nobody_is_compared_with_it() {
        let chain = Workload::Chain(1_000);
        let mut row = row(chain, [1.0, 2.0, 3.0]);
        row.times.truncate(2);
        assert_eq!(Limit::GraphFlow.is_kept(&row, &row.times[1]), None);
    }
}
