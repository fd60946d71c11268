//! Runs the workloads (see [`pirn_benches::cli`]).

fn main() -> std::io::Result<()> {
    pirn_benches::cli::main(Vec::new())
}
