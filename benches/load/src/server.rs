//! Servers under load, and the requests that start their runs.

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::Failure;

/// Address and kind of a server.
pub(crate) struct Server {
    kind: Kind,
    url: String,
    client: Client,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Pirn,
    LangGraph,
}

impl Server {
    pub(crate) fn new(kind: &str, url: &str) -> Result<Self, Failure> {
        let kind = match kind {
            "pirn" => Kind::Pirn,
            "langgraph" => Kind::LangGraph,
            other => return Err(format!("expected pirn or langgraph, not {other}").into()),
        };
        Ok(Self {
            kind,
            url: url.trim_end_matches('/').to_owned(),
            client: Client::builder().no_proxy().build()?,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Pirn => "Pirn",
            Kind::LangGraph => "LangGraph",
        }
    }

    /// Returns true if the server has a run with events to read.
    pub(crate) fn has_readers(&self) -> bool {
        self.kind == Kind::Pirn
    }

    /// Executes a run that returns a number.
    pub(crate) async fn echo(&self, n: usize) -> Result<(), Failure> {
        let (path, body) = match self.kind {
            Kind::Pirn => ("/v1/runs?wait=600", json!({"workflow": "echo", "input": {"n": n}})),
            Kind::LangGraph => ("/runs/wait", json!({"assistant_id": "echo", "input": {"n": n}})),
        };
        let answer = answer(self.post(path, &body)).await?;
        let given = match self.kind {
            Kind::Pirn if answer["status"] == "COMPLETED" => &answer["output"],
            Kind::Pirn => &Value::Null,
            Kind::LangGraph => &answer,
        };
        if *given != json!({ "n": n }) {
            return Err(format!("{n} was answered {answer}").into());
        }
        Ok(())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.url));
        request
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.url))
    }
}

/// Returns the JSON of a successful response.
pub(crate) async fn answer(request: RequestBuilder) -> Result<Value, Failure> {
    let text = request.send().await?.error_for_status()?.text().await?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns the resident memory of a process in MiB; 0 if it is not available.
pub(crate) fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<f64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}
