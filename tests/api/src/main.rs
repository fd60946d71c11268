//! Prints the public items of a crate, one a line: `pirn-api target/doc/pirn.json`.
//!
//! Implementations that follow from a type's fields or from a blanket implementation are omitted.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: pirn-api FILE.json");
        return ExitCode::from(2);
    };
    let listed = public_api::Builder::from_rustdoc_json(&file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let api = match listed {
        Ok(api) => api,
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let lines: String = api.items().map(|item| format!("{item}\n")).collect();
    match std::io::stdout().write_all(lines.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stdout: {error}");
            ExitCode::FAILURE
        }
    }
}
