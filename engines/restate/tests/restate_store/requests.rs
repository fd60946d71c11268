//! Requests to the server's admin API and ingress.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::Server;

/// Sends a request. Returns the answer's JSON, or none if the answer is an error.
pub(crate) fn curl(arguments: &[&str]) -> Option<Value> {
    let headers = [
        "-sf",
        "-H",
        "content-type: application/json",
        "-H",
        "accept: application/json",
    ];
    let told = Command::new("curl").args(headers).args(arguments).output();
    let told = told.expect("curl is there");
    told.status
        .success()
        .then(|| serde_json::from_slice(&told.stdout).unwrap_or_default())
}

/// Returns the rows of a query of the server's tables.
pub(crate) fn query(server: &Server, sql: &str) -> Value {
    let (query, url) = (json!({"query": sql}).to_string(), format!("{}/query", server.admin()));
    curl(&["-d", &query, &url]).unwrap_or_default()["rows"].take()
}

/// Repeats `look` until it returns a value.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
    }
}
