//! The page of the service: its files, their addresses and access rules, and `pirn studio`.

use std::process::{Command, Stdio};
use std::time::Duration;

use pirn::Engine;
use pirn::store::MemoryStore;
use pirn_service::{Access, Limits, Options, Service, StudioMode};
use reqwest::{Client, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::command::{Served, folder};
use crate::world::{World, answer, refusal};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

fn mode(studio: StudioMode) -> Options {
    Options {
        studio,
        ..Options::default()
    }
}

/// Returns the address that the page has for a file.
fn address_of(page: &str, name: &str) -> String {
    let parts = page.split('"');
    let mut named = parts.filter(|part| part.starts_with(name));
    named.next().expect("the page has the file").to_owned()
}

#[tokio::test]
async fn each_file_of_the_page_has_its_type_policy_and_version() {
    let world = World::new().await;
    let page = answer(world.get("/studio/")).await;
    assert_eq!(page.status, StatusCode::OK);
    let html = page.body.as_str().expect("text").to_owned();
    let files = [
        ("/studio/".to_owned(), "text/html; charset=utf-8"),
        (
            format!("/studio/{}", address_of(&html, "studio.js")),
            "text/javascript; charset=utf-8",
        ),
        (
            format!("/studio/{}", address_of(&html, "studio.css")),
            "text/css; charset=utf-8",
        ),
    ];
    for (path, media_type) in files {
        let whole = answer(world.get(&path)).await;
        assert_eq!(
            (whole.status, &whole.headers["content-type"]),
            (StatusCode::OK, &media_type.parse().expect("a type"))
        );
        assert_eq!(whole.headers["content-security-policy"], POLICY);
        assert_eq!(whole.headers["x-content-type-options"], "nosniff");
        let length = whole.body.as_str().expect("text").len();
        let head = answer(world.client.request(Method::HEAD, world.url(&path))).await;
        assert_eq!(head.headers["content-length"], length.to_string().as_str(), "{path}");
        assert_eq!(head.body, "");
        let tag = whole.headers["etag"].to_str().expect("a tag").to_owned();
        for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let unchanged = answer(world.get(&path).header("if-none-match", known)).await;
            assert_eq!(
                (unchanged.status, unchanged.body),
                (StatusCode::NOT_MODIFIED, json!(""))
            );
            assert_eq!(unchanged.headers["etag"], tag.as_str());
        }
        let changed = answer(world.get(&path).header("if-none-match", "\"other\"")).await;
        assert_eq!(changed.status, StatusCode::OK);
    }
    assert_eq!(refusal(world.get("/studio/other.js")).await, (404, "NOT_FOUND".into()));
}

#[tokio::test]
async fn only_an_address_with_the_present_version_is_cached_without_validation() {
    let world = World::new().await;
    let page = answer(world.get("/studio/")).await;
    assert_eq!(page.headers["cache-control"], "no-cache");
    let script = address_of(page.body.as_str().expect("text"), "studio.js");
    let cached = async |path: &str| {
        let file = answer(world.get(&format!("/studio/{path}"))).await;
        assert_eq!(file.status, StatusCode::OK, "{path}");
        file.headers["cache-control"].to_str().expect("text").to_owned()
    };
    assert_eq!(cached(&script).await, "public, max-age=31536000, immutable");
    // The address that the page of another build has, and the one without a version.
    for other in ["studio.js?v=0123456789abcdef", "studio.js", "studio.js?v="] {
        assert_eq!(cached(other).await, "no-cache");
    }
}

#[tokio::test]
async fn the_page_works_under_any_path_of_another_router() {
    let engine = Engine::builder().build().expect("an engine");
    let service = Service::new(engine, Options::default());
    let app = axum::Router::new()
        .nest("/workflows", service.router())
        .nest("/deep/{tenant}", service.router())
        .nest_service("/whole", service.router());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::builder().no_proxy().build().expect("a client");
    for (start, prefix) in [
        ("/workflows", "/workflows"),
        ("/workflows/studio", "/workflows"),
        ("/workflows/studio/", "/workflows"),
        ("/deep/a:b", "/deep/a:b"),
        ("/deep/a/studio", "/deep/a"),
        ("/whole", "/whole"),
        ("/whole/", "/whole"),
    ] {
        let page = client.get(format!("{base}{start}")).send().await.expect("a page");
        assert_eq!(page.status(), StatusCode::OK, "{start}");
        let url = page.url().clone();
        assert_eq!(url.path(), format!("{prefix}/studio/"), "{start}");
        let html = page.text().await.expect("text");
        for name in ["studio.js", "studio.css"] {
            let file = client.get(url.join(&address_of(&html, name)).expect("an address"));
            assert_eq!(file.send().await.expect("a file").status(), StatusCode::OK);
        }
        let info = client.get(url.join("../v1/info").expect("an address"));
        assert_eq!(info.send().await.expect("an answer").status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn the_files_of_the_page_need_no_token_and_its_requests_do() {
    let options = Options {
        access: Access {
            tokens: vec!["secret-1".to_owned()],
            ..Access::default()
        },
        ..Options::default()
    };
    let world = World::with(options).await;
    for path in [
        "/",
        "/studio",
        "/studio/",
        "/studio/studio.js",
        "/studio/more.js",
        "/studio/studio.css",
    ] {
        let file = answer(world.client.get(world.url(path))).await;
        assert_eq!(file.status, StatusCode::OK, "{path}");
        let rebound = world.client.get(world.url(path)).header("host", "evil.example");
        assert_eq!(refusal(rebound).await, (421, "WRONG_HOST".into()), "{path}");
    }
    for path in [
        "/v1/info",
        "/v1/runs",
        "/studio/v1/runs",
        "/studio/../v1/runs",
        "/studio/studio.map",
    ] {
        let bare = world.client.get(world.url(path));
        assert_eq!(refusal(bare).await, (401, "UNAUTHORIZED".into()), "{path}");
    }
    let info = answer(world.get("/v1/info")).await.body;
    assert_eq!(info["studio"], "full");
}

#[tokio::test]
async fn read_only_mode_refuses_changes_of_the_page_and_no_others() {
    let world = World::with(mode(StudioMode::Read)).await;
    let info = answer(world.get("/v1/info").header("x-pirn-studio", "1")).await.body;
    assert_eq!(
        info,
        json!({"version": env!("CARGO_PKG_VERSION"), "studio": "read", "store": false, "profiles": ["bot", "out", "payer", "short", "echo", "extractive"]})
    );
    assert_eq!(answer(world.get("/studio/")).await.status, StatusCode::OK);
    let body = json!({"workflow": "echo", "input": {}});
    for path in [
        "/v1/runs",
        "/v1/runs/x/cancel",
        "/v1/interactions/x.0.1",
        "/v1/chat/chat",
        "/mcp",
    ] {
        let refused = refusal(world.post(path, &body).header("x-pirn-studio", "1")).await;
        assert_eq!(refused, (403, "STUDIO_READ_ONLY".into()), "{path}");
    }
    assert_eq!(answer(world.get("/v1/runs")).await.body, json!({"runs": []}));
    assert_eq!(answer(world.post("/v1/runs", &body)).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn without_the_studio_there_is_no_page() {
    let world = World::with(mode(StudioMode::Off)).await;
    for path in ["/", "/studio", "/studio/", "/studio/studio.js"] {
        assert_eq!(refusal(world.get(path)).await, (404, "NOT_FOUND".into()), "{path}");
    }
    assert_eq!(answer(world.get("/v1/info")).await.body["studio"], "off");
}

#[tokio::test]
async fn the_metrics_of_the_last_minutes_are_sampled_while_the_studio_is_on() {
    let limits = Limits {
        metrics_interval: Duration::from_millis(20),
        ..Limits::default()
    };
    let world = World::limited(limits.clone()).await;
    let run = world.start("echo", json!({})).await;
    world.ended(&run).await;
    let started = loop {
        let recent = answer(world.get("/v1/metrics/recent")).await.body;
        assert_eq!(recent["intervalMs"], 20);
        assert!(recent["from"].as_u64() > Some(1_600_000_000_000));
        let series = recent["series"].as_array().expect("series").clone();
        let started = series
            .into_iter()
            .find(|line| line["name"] == "pirn_runs_started_total");
        if let Some(started) = started.filter(|line| line["points"].as_array().map(Vec::len) > Some(2)) {
            break started;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&started["kind"], &started["unit"]), (&json!("counter"), &json!("run")));
    assert_eq!(started["labels"], json!({"workflow": "echo"}));
    assert_eq!(started["points"].as_array().expect("points").last(), Some(&json!(1.0)));
    let off = Options {
        limits,
        ..mode(StudioMode::Off)
    };
    let world = World::with(off).await;
    for _ in 0..20 {
        let recent = answer(world.get("/v1/metrics/recent")).await.body;
        assert_eq!(recent["series"], json!([]));
    }
}

#[tokio::test]
async fn a_workflow_is_drawn_as_data_and_as_a_picture() {
    let world = World::new().await;
    let drawing = answer(world.get("/v1/workflows/two-people/drawing")).await.body;
    assert_eq!(nodes_of(&drawing), ["start", "fork", "ada", "bob", "join", "end"]);
    assert_eq!(drawing["edges"].as_array().map(Vec::len), Some(6));
    assert!(drawing["width"].as_u64() > Some(0) && drawing["fontSize"].as_u64() > Some(0));
    let picture = answer(world.get("/v1/workflows/two-people/drawing?format=svg")).await;
    assert_eq!(picture.headers["content-type"], "image/svg+xml");
    let policy = picture.headers["content-security-policy"].to_str().expect("text");
    assert!(
        policy.starts_with("default-src 'none'") && policy.ends_with("sandbox"),
        "{policy}"
    );
    assert!(
        picture
            .body
            .as_str()
            .is_some_and(|text| text.starts_with("<svg") && text.contains("ada"))
    );
    let run = world.start("echo", json!({})).await;
    world.ended(&run).await;
    let stored = World::of(Engine::builder().store(MemoryStore::new()), Options::default()).await;
    let other = stored.start("echo", json!({})).await;
    stored.ended(&other).await;
    for (world, run) in [(&world, &run), (&stored, &other)] {
        let own = answer(world.get("/v1/workflows/echo/drawing")).await.body;
        let all = answer(world.get(&format!("/v1/runs/{run}/drawings"))).await.body;
        assert_eq!(all, json!({"drawings": {"echo": own}}));
        assert_eq!(
            refusal(world.get("/v1/runs/none/drawings")).await,
            (404, "UNKNOWN_RUN".into())
        );
    }
    let unknown = refusal(world.get("/v1/workflows/two-peopl/drawing")).await;
    assert_eq!(unknown, (404, "UNKNOWN_WORKFLOW".into()));
    let format = refusal(world.get("/v1/workflows/echo/drawing?format=png")).await;
    assert_eq!(format, (400, "INVALID_REQUEST".into()));
}

/// Returns the ids of the nodes of a drawing.
fn nodes_of(drawing: &Value) -> Vec<&str> {
    let nodes = drawing["nodes"].as_array().expect("nodes").iter();
    nodes.filter_map(|node| node["id"].as_str()).collect()
}

#[tokio::test]
async fn a_workflow_that_a_model_wrote_is_drawn_before_and_after_it_runs() {
    for store in [None, Some(MemoryStore::new())] {
        let builder = Engine::builder().workflows(include_str!("../../examples/dynamic/dynamic.json"));
        let builder = match store {
            Some(store) => builder.store(store),
            None => builder,
        };
        let world = World::of(builder, Options::default()).await;
        let run = world.start("planner", json!("tea")).await;
        let open = format!("/v1/runs/{run}/interactions");
        let question = loop {
            let open = answer(world.get(&open)).await.body["interactions"].take();
            if let Some(id) = open[0]["id"].as_str() {
                break format!("/v1/interactions/{id}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let plan = answer(world.get(&format!("{question}/drawing"))).await.body;
        assert_eq!(nodes_of(&plan), ["s", "both", "a", "b", "facts", "verdict", "e"]);
        let picture = answer(world.get(&format!("{question}/drawing?format=svg"))).await;
        assert_eq!(picture.headers["content-type"], "image/svg+xml");
        answer(world.post(&question, &json!({"answer": "allow"}))).await;
        world.ended(&run).await;
        let closed = refusal(world.get(&format!("{question}/drawing"))).await;
        assert_eq!(closed, (409, "INTERACTION_CLOSED".into()));
        let all = answer(world.get(&format!("/v1/runs/{run}/drawings"))).await.body["drawings"].take();
        let written = all.as_object().expect("drawings").iter();
        let written: Vec<_> = written.filter(|(id, _)| id.starts_with("compare@")).collect();
        assert!(
            matches!(written[..], [(_, drawing)] if nodes_of(drawing) == nodes_of(&plan)),
            "{all}"
        );
    }
}

const ECHO: &str = r#"{"id": "echo", "edges": [{"from": "s", "to": "e"}],
    "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END", "config": {"output": "input"}}]}"#;

#[tokio::test]
async fn the_page_is_read_only_by_default_unless_the_address_is_loopback() {
    let folder = folder("studio-modes");
    std::fs::write(folder.join("echo.json"), ECHO).expect("a file");
    std::fs::write(folder.join("tokens"), "first\n").expect("a file");
    let client = Client::builder().no_proxy().build().expect("a client");
    for (arguments, mode) in [
        (&["--listen", "127.0.0.1:0"][..], "full"),
        (&["--listen", "0.0.0.0:0"], "read"),
        (&["--listen", "0.0.0.0:0", "--studio", "full"], "full"),
        (&["--listen", "127.0.0.1:0", "--studio", "read"], "read"),
        (&["--listen", "127.0.0.1:0", "--studio", "off"], "off"),
    ] {
        let all = [&["echo.json", "--token-file", "tokens"], arguments].concat();
        let served = Served::with("serve", &folder, &all);
        let info = client.get(format!("{}/v1/info", served.url.trim().replace("0.0.0.0", "127.0.0.1")));
        let info = answer(info.header(header::AUTHORIZATION, "Bearer first")).await.body;
        assert_eq!(info["studio"], mode, "{arguments:?}");
    }
}

/// Starts `pirn studio` with programs in `folder/bin` only; returns the printed address.
#[cfg(unix)]
fn studio(folder: &std::path::Path, arguments: &[&str]) -> (std::process::Child, String) {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args(["studio", "echo.json", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .current_dir(folder)
        .env("PATH", folder.join("bin"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut line).expect("a line");
    (child, line.trim().to_owned())
}

#[cfg(unix)]
#[tokio::test]
async fn pirn_studio_prints_its_address_and_opens_a_browser_if_there_is_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder("studio-opens");
    std::fs::create_dir_all(folder.join("bin")).expect("a folder");
    std::fs::write(folder.join("echo.json"), ECHO).expect("a file");
    let client = Client::builder().no_proxy().build().expect("a client");
    let end = |mut child: std::process::Child| {
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    };
    // No browser.
    let (child, page) = studio(&folder, &[]);
    assert_eq!(answer(client.get(&page)).await.status, StatusCode::OK);
    end(child);
    // A named pipe: reading it waits for the browser.
    let (opened, browser) = (folder.join("opened"), folder.join("bin/xdg-open"));
    let made = Command::new("mkfifo").arg(&opened).status().expect("there is a mkfifo");
    assert!(made.success());
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$@\" > {}\n", opened.display())).expect("a file");
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).expect("its own");
    let (child, page) = studio(&folder, &[]);
    assert!(
        page.starts_with("http://127.0.0.1:") && page.ends_with("/studio/"),
        "{page}"
    );
    if cfg!(target_os = "linux") {
        assert_eq!(std::fs::read_to_string(&opened).expect("readable").trim(), page);
    }
    end(child);
    // A browser that must not be started.
    std::fs::remove_file(&opened).expect("its own");
    let (child, page) = studio(&folder, &["--no-open"]);
    assert_eq!(answer(client.get(&page)).await.status, StatusCode::OK);
    end(child);
    assert!(!opened.exists());
    let refused = Command::new(env!("CARGO_BIN_EXE_pirn"))
        .args(["studio", "echo.json", "--studio", "off"])
        .current_dir(&folder)
        .output()
        .expect("it ends");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("use pirn serve"), "{said}");
}
