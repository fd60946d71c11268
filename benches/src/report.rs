//! Complete benchmark: all workloads on every side, the table on stdout, the chart in the file named by `PIRN_BENCH_PICTURE`.

use std::io::Write as _;

use crate::compare::Row;
use crate::sides::{Spin, local, pirn, raw};
use crate::{Side, Workload, compare, picture, processes, table};

/// Measures `workloads` in several processes of this program, and prints the table.
///
/// # Errors
/// Fails if a process fails, or the results cannot be written.
pub fn run(workloads: Vec<Workload>) -> std::io::Result<()> {
    let mut all = Vec::new();
    for workload in workloads {
        all.extend(processes::measure(workload)?);
        writeln!(std::io::stderr(), "{}", workload.label())?;
    }
    write!(std::io::stdout(), "{}", table::markdown(&all))?;
    if let Some(file) = std::env::var_os("PIRN_BENCH_PICTURE") {
        std::fs::write(file, picture::svg(&all))?;
    }
    Ok(())
}

/// Measures Pirn, raw tokio and `others` on a workload in this process.
///
/// # Errors
/// Fails if a local engine cannot be built.
pub async fn samples(workload: Workload, others: &[Side]) -> std::io::Result<Vec<Row>> {
    let spin = match workload {
        Workload::Cpu(_) => Spin::calibrated(),
        _ => Spin::none(),
    };
    let sides = [raw::side(workload, spin), pirn::side(&[workload], spin, false)];
    let heard = matches!(workload, Workload::Chain(_) | Workload::Fork(_));
    let heard = heard.then(|| pirn::side(&[workload], spin, true));
    let local = local::side(workload)?;
    let sides: Vec<&Side> = sides.iter().chain(&heard).chain([&local]).chain(others).collect();
    Ok(compare::measure(workload, &sides).await)
}
