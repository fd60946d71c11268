//! A run as one HTML file: the page of the Studio with the run's data, for a browser without a service.
//!
//! The data are the answers of the API to the requests of the page, so the page shows a file and a service alike.

use std::collections::BTreeSet;
use std::fmt::Write;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use pirn::store::ContentHash;
use serde_json::{Map, Value, json};

use crate::http::problem::{Problem, ProblemCode};
use crate::limits::Limits;
use crate::options::Options;
use crate::state::Service;
use crate::studio::StudioMode;
use crate::studio::page::{HTML, SCRIPT, STYLE};
use pirn::Engine;

/// Maximum size of an answer.
const MAX_BYTES: usize = 512 << 20;

/// Maximum number of steps of a run whose state after each step is part of the file, and of model requests with their messages. Each
/// of them replays the run.
const MAX_REPLAYS: usize = 200;

/// Returns the page of a run of the engine's store as one HTML file, which opens at `step`, or else at the end of the run.
///
/// `mask` receives the data as JSON and masks the secrets in its strings. The state after each step is part of the file if the run
/// has at most 200 steps, otherwise that of `step`; of the model requests, the first 200 have their messages.
///
/// # Errors
/// Fails if the store has no such run, cannot be read, or has more data of the run than fit into a page.
pub async fn export_run(
    engine: Engine,
    run_id: &str,
    step: Option<u64>,
    mask: impl FnOnce(String) -> String,
) -> Result<String, Problem> {
    let options = Options {
        limits: Limits {
            stream_bytes: MAX_BYTES,
            stored_bytes: 2 * MAX_BYTES,
            history_bytes: MAX_BYTES,
            ..Limits::default()
        },
        studio: StudioMode::Off,
        ..Options::default()
    };
    let client = Client(TowerToHyperService::new(Service::new(engine, options).router()));
    let run = format!("/runs/{}", encoded(run_id));
    let data = json!({"export": true, "responses": responses(&client, &run, step).await?});
    let start = step.map(|step| format!("#{run}/graph?step={step}"));
    page(&mask(data.to_string()), start.as_deref())
}

/// Collects the answers to the requests that the page sends for a run.
async fn responses(client: &Client, run: &str, step: Option<u64>) -> Result<Map<String, Value>, Problem> {
    let mut all = Map::new();
    for part in ["", "/interactions", "/definition", "/drawings", "/explain"] {
        let path = format!("{run}{part}");
        let answer = client.get(&path).await?;
        all.insert(path, answer);
    }
    let events = client.text(&format!("{run}/events")).await?;
    all.insert(format!("{run}/events"), events_of(&events).into());
    let mut lists = Vec::new();
    for name in ["steps", "threads", "requests"] {
        let list = client.list(&format!("{run}/{name}"), name).await?;
        all.insert(format!("{run}/{name}"), json!({ name: list }));
        lists.push(list);
    }
    let requests = lists.pop().unwrap_or_default();
    for request in requests.iter().take(MAX_REPLAYS) {
        let effect = encoded(request["effectId"].as_str().unwrap_or_default());
        let path = format!("{run}/requests/{effect}");
        let answer = client.get(&path).await?;
        all.insert(path, answer);
    }
    let last = lists[0]
        .last()
        .and_then(|step| step["step"].as_u64())
        .unwrap_or_default();
    // The page marks what the step has changed, so it requests the state before it too. A step that the run lacks is an error. Step 0 has
    // the base of a fork.
    let mut steps: BTreeSet<u64> = step.iter().flat_map(|step| [step.saturating_sub(1), *step]).collect();
    steps.insert(0);
    if last <= MAX_REPLAYS as u64 {
        steps.extend(0..=last);
    }
    for step in steps {
        let path = format!("{run}?at={step}");
        let answer = client.get(&path).await?;
        all.insert(path, answer);
    }
    Ok(all)
}

/// Sends requests to a router without a connection.
struct Client(TowerToHyperService<axum::Router>);

impl Client {
    async fn text(&self, path: &str) -> Result<String, Problem> {
        let internal = |error: String| Problem::new(ProblemCode::Internal, error);
        let request = Request::get(format!("/v1{path}")).header(header::HOST, "localhost");
        let request = request
            .body(Body::empty())
            .map_err(|error| internal(error.to_string()))?;
        let answer = self.0.call(request).await.map_err(|never| match never {})?;
        let status = answer.status();
        let body = to_bytes(answer.into_body(), MAX_BYTES).await;
        let body = body.map_err(|_| {
            let detail = format!("{path} has more than {} MiB, too much for a page", MAX_BYTES >> 20);
            Problem::new(ProblemCode::TooManyBytes, detail)
        })?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status == StatusCode::OK {
            return Ok(text);
        }
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let code = ProblemCode::ALL.iter().find(|code| problem["code"] == code.as_str());
        let detail = problem["detail"].as_str().unwrap_or(&text);
        Err(Problem::new(code.copied().unwrap_or(ProblemCode::Internal), detail))
    }

    /// Returns JSON, or else the text as a JSON string.
    async fn get(&self, path: &str) -> Result<Value, Problem> {
        let text = self.text(path).await?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Returns the entries of all pages of a list.
    async fn list(&self, path: &str, name: &str) -> Result<Vec<Value>, Problem> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let mut page = self.get(&format!("{path}?limit=1000{after}")).await?;
            if let Value::Array(entries) = page[name].take() {
                all.extend(entries);
            }
            match &page["next"] {
                Value::Null => return Ok(all),
                next => after = format!("&after={next}"),
            }
        }
    }
}

/// Returns the events of a stream; the named ones are no events of the run.
fn events_of(stream: &str) -> Vec<Value> {
    let blocks = stream.split("\n\n").filter(|block| !block.contains("event: "));
    let data = blocks.filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// Encodes a segment of a path as the page does (JavaScript's `encodeURIComponent`).
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Builds the file: the page with its style, script and data inside.
fn page(data: &str, start: Option<&str>) -> Result<String, Problem> {
    let script = in_script(SCRIPT);
    let style = STYLE.replace("</", "<\\/");
    // Sets the view that is shown first. The address may name another one.
    let start = start.map(|start| format!("if(!location.hash)location.hash={}", in_json(&json!(start).to_string())));
    let mut scripts = format!(
        "<script type=\"application/json\" id=\"run-data\">{}</script>\n",
        in_json(data)
    );
    let mut sources = vec![&script];
    if let Some(start) = &start {
        // Writing to a string does not fail.
        let _ = writeln!(scripts, "<script>{start}</script>");
        sources.push(start);
    }
    let _ = write!(scripts, "<script type=\"module\">{script}</script>");
    let hashes: Vec<String> = sources.into_iter().map(|source| hash(source)).collect();
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hashes.join(" "),
        hash(&style)
    );
    let charset = "<meta charset=\"utf-8\">";
    let head = format!("{charset}\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">");
    let built = replaced(HTML, charset, "", &head)
        .and_then(|page| {
            replaced(
                &page,
                "<link rel=\"stylesheet\"",
                ">",
                &format!("<style>{style}</style>"),
            )
        })
        .and_then(|page| replaced(&page, "<script ", "</script>", &scripts));
    built.ok_or_else(|| Problem::new(ProblemCode::Internal, "the page lacks its script or its style"))
}

/// Replaces the text from `start` to the next `end`; `None` if it does not occur.
fn replaced(text: &str, start: &str, end: &str, with: &str) -> Option<String> {
    let (before, rest) = text.split_once(start)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{with}{after}"))
}

/// Escapes JSON for an HTML file: without `<`, no text of a run ends the element or starts a comment in it.
fn in_json(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Escapes a script for an HTML file. The sequences occur in string literals only, which the escape does not change.
fn in_script(script: &str) -> String {
    script.replace("</script", "\\x3c/script").replace("<!--", "\\x3c!--")
}

/// Returns the hash by which the policy allows an inline script or style.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(ContentHash::of(text).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_run_cannot_leave_the_data_of_the_page() {
        let hostile = "</script><script>alert(1)</script><!--\u{2028}\u{2029}<img src=x onerror=alert(1)>";
        let data = json!({"export": true, "responses": {"/runs/x": {"output": hostile}}}).to_string();
        let page = page(&data, Some("#/runs/</script>/graph")).expect("a page");
        let inside = page.split_once("id=\"run-data\">").expect("the data").1;
        let inside = inside.split_once("</script>").expect("an end").0;
        let read: Value = serde_json::from_str(inside).expect("JSON");
        assert_eq!(read["responses"]["/runs/x"]["output"], hostile);
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(!page.contains("<img src=x") && !page.contains('\u{2028}'));
    }

    #[test]
    fn the_policy_allows_exactly_the_inline_parts_of_the_page() {
        let page = page("{}", Some("#/runs/x/graph?step=3")).expect("a page");
        let policy = page
            .split_once("Content-Security-Policy\" content=\"")
            .expect("a policy")
            .1;
        let policy = policy.split_once('"').expect("an end").0;
        let mut parts: Vec<&str> = page
            .split("<script>")
            .skip(1)
            .chain(page.split("<script type=\"module\">").skip(1))
            .collect();
        parts.extend(page.split("<style>").skip(1));
        let inline = parts.iter().map(|part| part.split("</s").next().unwrap_or_default());
        let hashes: Vec<String> = inline.map(hash).collect();
        assert_eq!(hashes.len(), 3);
        assert!(hashes.iter().all(|hash| policy.contains(hash.as_str())), "{policy}");
        assert_eq!(policy.matches("sha256-").count(), 3);
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert!(!page.contains("src=\"studio") && !page.contains("href=\"studio"));
    }

    #[test]
    fn segments_are_encoded_as_in_the_page() {
        assert_eq!(encoded("run-1.0_ä/b c?#"), "run-1.0_%C3%A4%2Fb%20c%3F%23");
    }
}
