//! The `pirn` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    pirn_cli::main()
}
