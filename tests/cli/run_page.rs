//! `pirn runs show RUN --html FILE`.

use serde_json::{Value, json};

use crate::command::pirn_in;
use crate::folder::Folder;

/// Text that would end the data, or load something, if it were not escaped.
const HOSTILE: &str = "</script><script>alert(1)</script><!-- \u{2028} <img src=//evil.example>";

/// A folder with a store in which run `r` has ended: a model has replied, and a key is in its input.
fn folder(name: &str) -> Folder {
    let workflow = json!({"workflows": [{"id": "w", "nodes": [
            {"id": "start", "type": "START"},
            {"id": "ask", "type": "LLM", "config": {"prompt": "{{input}}", "profileId": "m"}},
            {"id": "end", "type": "END"}],
        "edges": [{"from": "start", "to": "ask"}, {"from": "ask", "to": "end"}]}],
        "profiles": [{"id": "m", "provider": "scripted", "responses": [{"content": HOSTILE}]}]});
    let folder = Folder::new(name).with("w.json", &workflow.to_string());
    let input = json!("my key is sk-0123456789abcdef").to_string();
    let arguments = [
        "run", "w.json", "--input", &input, "--store", "runs.db", "--run-id", "r", "--quiet",
    ];
    let ended = pirn_in(folder.path(), &arguments, &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    folder
}

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.path().join(name)).expect("the page")
}

/// Returns the answers in a page.
fn responses(page: &str) -> Value {
    let data = page.split_once("id=\"run-data\">").expect("the data").1;
    let data = data.split_once("</script>").expect("an end").0;
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["export"], true);
    data["responses"].clone()
}

#[test]
fn the_page_of_a_run_contains_the_answers_of_the_service_and_no_secret() {
    let folder = folder("run-page");
    let arguments = ["runs", "show", "r", "--html", "r.html", "--store", "runs.db"];
    let written = pirn_in(folder.path(), &arguments, &[]);
    assert_eq!(
        (written.code, written.stdout.trim()),
        (Some(0), "r.html"),
        "{}",
        written.stderr
    );
    let page = read(&folder, "r.html");
    let responses = responses(&page);
    assert_eq!(responses["/runs/r"]["status"], "COMPLETED");
    assert_eq!(responses["/runs/r"]["output"]["content"], HOSTILE);
    for name in ["steps", "threads", "requests"] {
        let list = responses[format!("/runs/r/{name}")][name].as_array().expect("a list");
        assert!(!list.is_empty(), "{name}");
    }
    let events = responses["/runs/r/events"].as_array().expect("events");
    let types = [events.first(), events.last()].map(|event| event.expect("an event")["type"].clone());
    assert_eq!(types, ["THREAD_STARTED", "THREAD_COMPLETED"]);
    let effect = responses["/runs/r/requests"]["requests"][0]["effectId"]
        .as_str()
        .expect("an id");
    let encoded = effect.replace('#', "%23").replace('/', "%2F").replace(':', "%3A");
    let request = &responses[format!("/runs/r/requests/{encoded}")];
    assert!(request["request"]["messages"].is_array(), "{effect}: {request}");
    assert!(responses["/runs/r/drawings"]["drawings"]["w"]["nodes"].is_array());
    assert!(responses["/runs/r/explain"].is_string());
    assert!(responses["/runs/r?at=0"].is_object() && responses["/runs/r?at=1"].is_object());
    assert!(!page.contains("sk-0123456789abcdef") && page.contains("my key is *******************"));
    // No text of the run is HTML, and nothing is loaded from elsewhere.
    assert!(!page.contains("<img src=//evil.example") && !page.contains("<script>alert"));
    assert!(!page.contains("src=\"") && !page.contains("stylesheet"));
}

#[test]
fn the_page_opens_at_a_step_and_wrong_usage_writes_no_file() {
    let folder = folder("run-page-at");
    let show = |arguments: &[&str]| {
        let all = [&["runs", "show"], arguments, &["--store", "runs.db"]].concat();
        pirn_in(folder.path(), &all, &[])
    };
    let written = show(&["r", "--html", "r.html", "--at", "1", "--output", "json"]);
    assert_eq!(
        (written.code, written.json()),
        (Some(0), json!({"file": "r.html", "formatVersion": 1})),
        "{}",
        written.stderr
    );
    assert!(read(&folder, "r.html").contains("location.hash=\"#/runs/r/graph?step=1\""));
    for arguments in [
        &["none", "--html", "no.html"][..],
        &["r", "--html", "no.html", "--at", "999"],
        &["r", "--html", "no.html", "--history"],
        &["r", "--html", "runs.db"],
        &["r", "--html", "no-such-folder/no.html"],
    ] {
        let refused = show(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.stderr);
    }
    assert!(!folder.path().join("no.html").exists());
    assert_eq!(show(&["r"]).code, Some(0), "the store is unchanged");
}
