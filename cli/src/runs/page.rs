//! `pirn runs show ID --html FILE`: a run as one HTML file.

use std::process::ExitCode;

use pirn_service::export_run;

use crate::output::failure::Failure;
use crate::output::redact::masked;
use crate::output::terminal::{Output, answer, json_text};
use crate::store::place::StoreArgs;
use crate::store::{close, run_of, spare};

/// Writes the page of a run, which opens at `step`, or else at the run's end.
pub(super) fn write(
    store: &StoreArgs,
    id: &str,
    step: Option<u64>,
    (path, output): (&str, Output),
) -> Result<ExitCode, Failure> {
    spare(store.place()?.file().as_deref(), path)?;
    let engine = store.open_engine()?;
    let page = page(&engine, id, step);
    close(&engine);
    let unwritten = |error: std::io::Error| Failure::usage("WRITE_FAILED", format!("cannot write {path}: {error}"));
    std::fs::write(path, page?).map_err(unwritten)?;
    let text = match output {
        Output::Json => json_text(serde_json::json!({ "file": path })),
        Output::Text => format!("{path}\n"),
    };
    Ok(answer(&text, 0))
}

fn page(engine: &pirn::Engine, id: &str, step: Option<u64>) -> Result<String, Failure> {
    if let Some(store) = engine.store() {
        run_of(&**store, id)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed("NO_THREADS", error.to_string()))?;
    let page = runtime.block_on(export_run(engine.clone(), id, step, |data| masked(&data).into_owned()));
    page.map_err(|problem| match problem.code() {
        "INVALID_VALUE" => Failure::usage("NO_SUCH_STEP", problem.detail()),
        code => Failure::failed(code, problem.detail()),
    })
}
