//! The OpenAPI document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::world::{World, answer};

/// Every `$ref` in a document.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _plain => {}
    }
}

#[tokio::test]
async fn the_document_lists_exactly_the_routes_of_the_service() {
    let world = World::new().await;
    let document = answer(world.get("/openapi.json")).await.body;
    assert!(document["openapi"].as_str().expect("a version").starts_with("3.1"));
    let paths = document["paths"].as_object().expect("paths");
    let chat = &paths["/v1/chat/{workflow}"]["post"]["responses"];
    assert!(chat["410"].is_object() && chat["503"].is_object(), "{chat}");
    for (path, methods) in [
        ("/v1/runs", &["get", "post"][..]),
        ("/v1/runs/{id}", &["get"]),
        ("/v1/runs/{id}/events", &["get"]),
        ("/v1/runs/{id}/steps", &["get"]),
        ("/v1/runs/{id}/threads", &["get"]),
        ("/v1/runs/{id}/requests", &["get"]),
        ("/v1/runs/{id}/requests/{effect}", &["get"]),
        ("/v1/runs/{id}/definition", &["get"]),
        ("/v1/runs/{id}/explain", &["get"]),
        ("/v1/runs/{id}/diff/{other}", &["get"]),
        ("/v1/runs/{id}/cancel", &["post"]),
        ("/v1/runs/{id}/pause", &["post"]),
        ("/v1/runs/{id}/resume", &["post"]),
        ("/v1/runs/{id}/emit", &["post"]),
        ("/v1/runs/{id}/pin", &["post"]),
        ("/v1/workflows", &["get"]),
        ("/v1/workflows/{id}", &["get"]),
        ("/v1/agui/{workflow}", &["post"]),
        ("/v1/chat/{workflow}", &["post"]),
        ("/v1/info", &["get"]),
        ("/v1/interactions", &["get"]),
        ("/v1/sessions", &["get"]),
        ("/v1/status", &["get"]),
        ("/v1/metrics/recent", &["get"]),
        ("/v1/workflows/{id}/drawing", &["get"]),
        ("/v1/runs/{id}/drawings", &["get"]),
        ("/v1/interactions/{id}/drawing", &["get"]),
        ("/healthz", &["get"]),
        ("/readyz", &["get"]),
        ("/metrics", &["get"]),
    ] {
        for method in methods {
            assert!(paths[path].get(method).is_some(), "{method} {path}");
        }
    }
    // Each call has a unique name and describes its errors.
    let calls: Vec<&Value> = paths
        .values()
        .flat_map(|path| path.as_object().expect("methods").values())
        .collect();
    let names: BTreeSet<&str> = calls.iter().filter_map(|call| call["operationId"].as_str()).collect();
    assert_eq!(names.len(), calls.len(), "{names:?}");
    let parameters = |path: &str, method: &str| -> Vec<(String, Value)> {
        let parameters = paths[path][method]["parameters"].as_array().expect("parameters");
        let known = |parameter: &Value| {
            (
                parameter["name"].as_str().unwrap_or_default().to_owned(),
                parameter["in"].clone(),
            )
        };
        parameters.iter().map(known).collect()
    };
    let query = |names: &[&str]| -> Vec<(String, Value)> {
        names.iter().map(|name| ((*name).to_owned(), json!("query"))).collect()
    };
    assert_eq!(parameters("/v1/runs", "post"), query(&["wait"]));
    assert_eq!(
        parameters("/v1/runs", "get"),
        query(&[
            "status",
            "workflow",
            "session",
            "text",
            "startedAfter",
            "startedBefore",
            "after",
            "limit"
        ])
    );
    for call in &calls {
        let error = &call["responses"]["default"]["content"]["application/problem+json"];
        assert_eq!(error["schema"]["$ref"], "#/components/schemas/Problem", "{call}");
    }
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(
        document["security"],
        json!([{}, {"token": []}]),
        "a token may not be needed"
    );
    let mut found = Vec::new();
    references(&document, &mut found);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("inside the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    // PATCH gives 405 for a path that the router has, and 404 for any other.
    for path in paths.keys() {
        let asked = path
            .replace("{id}", "x")
            .replace("{workflow}", "x")
            .replace("{other}", "y")
            .replace("{effect}", "x");
        let answer = answer(world.client.patch(world.url(&asked))).await;
        assert_eq!(answer.status, 405, "{path}");
    }
}

#[tokio::test]
async fn every_field_of_a_started_run_is_in_its_schema() {
    let world = World::new().await;
    let document = answer(world.get("/openapi.json")).await.body;
    let run = answer(world.post("/v1/runs", &json!({"workflow": "echo", "input": {}})))
        .await
        .body;
    let schema = document["components"]["schemas"]["RunSummary"].clone();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    assert!(validator.is_valid(&run), "{run}");
    let fields = schema["properties"].as_object().expect("properties");
    assert!(
        run.as_object()
            .expect("fields")
            .keys()
            .all(|field| fields.contains_key(field))
    );
}

#[tokio::test]
async fn answers_have_the_media_types_and_schemas_of_the_document() {
    let world = World::new().await;
    let document = answer(world.get("/openapi.json")).await.body;
    let content = |method: &str, path: &str, status: &str| {
        let response = &document["paths"][path][method]["responses"][status];
        response["content"].as_object().expect("contents").clone()
    };
    let validator = |schema: &Value| {
        let mut schema = schema.clone();
        schema["components"] = document["components"].clone();
        jsonschema::validator_for(&schema).expect("a schema")
    };
    let start = content("post", "/v1/runs", "201");
    assert!(start.contains_key("text/event-stream"), "{start:?}");
    let started = validator(&start["application/json"]["schema"]);
    let body = json!({"workflow": "echo", "input": {}});
    for path in ["/v1/runs", "/v1/runs?wait=60"] {
        let run = answer(world.post(path, &body)).await.body;
        assert!(started.is_valid(&run), "{path}: {run}");
    }
    for path in ["/v1/workflows/{id}/drawing", "/v1/interactions/{id}/drawing"] {
        let drawing = content("get", path, "200");
        assert_eq!(
            drawing.keys().collect::<Vec<_>>(),
            ["application/json", "image/svg+xml"]
        );
    }
    let id = world.start("asks", Value::Null).await;
    world.until(&id, "INTERACTION_REQUESTED").await;
    let open = content("get", "/v1/runs/{id}/interactions", "200");
    let open = validator(&open["application/json"]["schema"]);
    let asked = answer(world.get(&format!("/v1/runs/{id}/interactions"))).await.body;
    assert_eq!(asked["interactions"][0]["choices"], json!(["red", "blue"]));
    assert!(open.is_valid(&asked), "{asked}");
    for (method, part) in [
        ("get", ""),
        ("get", "/steps"),
        ("get", "/threads"),
        ("get", "/requests"),
        ("get", "/requests/{effect}"),
        ("get", "/definition"),
        ("get", "/explain"),
        ("get", "/drawings"),
        ("get", "/diff/{other}"),
        ("get", "/events"),
        ("post", "/fork"),
    ] {
        let dropped = content(method, &format!("/v1/runs/{{id}}{part}"), "410");
        assert!(dropped.contains_key("application/problem+json"), "{part}");
    }
    for path in ["/v1/chat/{workflow}/{chat}/stream", "/v1/agui/{workflow}"] {
        for status in ["410", "503"] {
            let refused = content("get", path, status);
            assert!(refused.contains_key("application/problem+json"), "{path}: {status}");
        }
    }
}

/// Routes that are not described by the document: the document itself, MCP and the page.
const UNDESCRIBED: [&str; 3] = ["GET /openapi.json", "POST /mcp", "GET /studio/"];

#[tokio::test]
async fn the_page_of_routes_lists_exactly_the_routes_of_the_document() {
    let world = World::new().await;
    let document = answer(world.get("/openapi.json")).await.body;
    let paths = document["paths"].as_object().expect("paths").iter();
    let described = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let expected: BTreeSet<String> = described.chain(UNDESCRIBED.map(str::to_owned)).collect();
    let page = include_str!("../../docs/reference/routes.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let listed: BTreeSet<String> = rows.map(|(route, _)| route.to_owned()).collect();
    assert_eq!(listed, expected);
}
