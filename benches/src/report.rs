//! Complete benchmark: all workloads on every side, the table on stdout, the chart in the file named by `PIRN_BENCH_PICTURE`.

use std::io::Write as _;

use crate::sides::{Spin, local, pirn, raw};
use crate::{Side, Workload, compare, picture, table};

/// Measures Pirn, raw tokio and `others` on `workloads`.
///
/// # Errors
/// Fails if the results cannot be written.
pub async fn run(workloads: Vec<Workload>, others: Vec<Side>) -> std::io::Result<()> {
    let needs_spin = workloads.iter().any(|workload| matches!(workload, Workload::Cpu(_)));
    let spin = if needs_spin { Spin::calibrated() } else { Spin::none() };
    let mut rows = Vec::new();
    let others = &others;
    for workload in workloads {
        // A separate engine for each workload, so that 100,000 triggers do not slow a chain down.
        let sides = [raw::side(workload, spin), pirn::side(&[workload], spin, false)];
        let heard = matches!(workload, Workload::Chain(_) | Workload::Fork(_));
        let heard = heard.then(|| pirn::side(&[workload], spin, true));
        let local = local::side(workload)?;
        let sides: Vec<&Side> = sides.iter().chain(&heard).chain([&local]).chain(others).collect();
        rows.extend(compare::measure(workload, &sides).await);
        let mut err = std::io::stderr().lock();
        writeln!(err, "{}", workload.label())?;
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{}", table::markdown(&rows))?;
    if let Some(file) = std::env::var_os("PIRN_BENCH_PICTURE") {
        std::fs::write(file, picture::svg(&rows))?;
    }
    Ok(())
}
