//! The audit log of a service with tokens.

use reqwest::{Client, RequestBuilder};
use serde_json::json;

use crate::command::{ECHO, Served, folder};
use crate::world::answer;

#[tokio::test]
async fn the_audit_log_states_who_changed_or_was_refused_what() {
    let folder = folder("audit");
    std::fs::write(folder.join("echo.json"), ECHO).expect("a file");
    let tokens = "secret-a name=ada tenant=acme\nsecret-b name=bob roles=read\n";
    std::fs::write(folder.join("tokens"), tokens).expect("a file");
    let mut served = Served::start(&folder, &["echo.json", "--token-file", "tokens"]);
    let client = Client::builder().no_proxy().build().expect("a client");
    let start = |token: &str| -> RequestBuilder {
        let body = json!({"workflow": "echo", "runId": "order-1", "input": {"text": "private"}}).to_string();
        let request = client.post(format!("{}/v1/runs?wait=10", served.url)).body(body);
        request.header("content-type", "application/json").bearer_auth(token)
    };
    assert_eq!(answer(start("secret-a")).await.status, 201);
    let list = client.get(format!("{}/v1/runs", served.url)).bearer_auth("secret-b");
    assert_eq!(answer(list).await.status, 200, "a read is not logged");
    assert_eq!(answer(start("secret-b")).await.status, 403);
    assert_eq!(answer(start("wrong")).await.status, 401);
    let post = "method=POST path=\"/v1/runs\"";
    for expected in [
        "run started caller=\"ada\" tenant=\"acme\" run=\"acme~order-1\"".to_owned(),
        format!("request caller=\"ada\" tenant=\"acme\" {post} status=201"),
        format!("request caller=\"bob\" {post} status=403 code=\"FORBIDDEN\""),
        format!("request {post} status=401 code=\"UNAUTHORIZED\""),
    ] {
        let line = served.line("pirn::audit: ").expect("a line");
        assert_eq!(line, expected);
    }
}
