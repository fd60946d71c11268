//! HTTP tools, tested against a server on the loopback interface that answers one request per connection.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::fixtures::{Seen, answer, call, calling, registry, runtime, serve};
use crate::tools_of;

/// A server that sends these responses, one per connection, and records the requests.
struct Server {
    url: String,
    seen: JoinHandle<Vec<Seen>>,
}

impl Server {
    fn answering(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = std::thread::spawn(move || {
            let answers = answers.into_iter();
            let seen = answers.map(|answer| serve(&listener.accept().expect("a connection").0, |_| answer));
            seen.collect()
        });
        Self { url, seen }
    }

    fn seen(self) -> Vec<Seen> {
        self.seen.join().expect("the server ends")
    }
}

/// Calls a tool once against a server with these responses; returns the result and the recorded requests.
fn once(http: impl FnOnce(&str) -> Value, given: Value, answers: Vec<String>) -> (Result<String, String>, Vec<Seen>) {
    let server = Server::answering(answers);
    let tool = registry(
        &json!({"a": {}, "b": {}, "c": {}}),
        json!({ "http": http(&server.url), "maxOutputBytes": 12 }),
    );
    (call(&tool, given), server.seen())
}

#[test]
fn arguments_are_encoded_in_the_path_and_the_query() {
    let http = |url: &str| json!({"url": format!("{url}/x/{{{{a}}}}/y"), "query": {"q": "{{b}}", "none": "{{c}}"}});
    let (said, seen) = once(
        http,
        json!({"a": "../u?v#w é", "b": "1&admin=2"}),
        vec![answer("200 OK", "fine")],
    );
    assert_eq!(said, Ok("fine".to_owned()));
    assert_eq!(
        seen[0].line,
        "GET /x/..%2Fu%3Fv%23w%20%C3%A9/y?q=1%26admin%3D2 HTTP/1.1"
    );
}

#[test]
fn a_dot_segment_or_missing_argument_sends_no_request() {
    let tool = registry(
        &json!({"a": {}}),
        json!({"http": {"url": "http://127.0.0.1:9/x/{{a}}/y"}}),
    );
    for (given, part) in [
        (json!({"a": ".."}), "climb"),
        (json!({"a": "."}), "climb"),
        (json!({}), "the argument `a` is missing, which the URL needs"),
    ] {
        assert!(call(&tool, given).expect_err("refused").contains(part));
    }
    let text = registry(
        &json!({"a": {}, "b": {}}),
        json!({"http": {"method": "POST", "url": "http://127.0.0.1:9", "body": "{{a}} {{b}}"}}),
    );
    let absent = call(&text, json!({"a": 1})).expect_err("refused");
    assert!(
        absent.contains("the argument `b` is missing, which the body needs"),
        "{absent}"
    );
}

#[test]
fn headers_are_sent_and_values_from_the_environment_are_never_shown() {
    let http = |url: &str| json!({"url": url, "headers": {"x-plain": "yes"}, "headersEnv": {"x-name": "CARGO_PKG_NAME", "x-text": "Bearer ${CARGO_PKG_NAME}"}});
    let (said, seen) = once(http, json!({}), vec![answer("204 No Content", "")]);
    assert_eq!(said, Ok("(no content)".to_owned()));
    for header in ["x-plain: yes", "x-name: pirn-tools", "x-text: Bearer pirn-tools"] {
        assert!(seen[0].has(header), "{header}: {seen:?}");
    }
    let open = json!({"tools": [{
        "name": "t", "description": "d", "inputSchema": {"type": "object"},
        "http": {"url": "http://127.0.0.1:9", "headersEnv": {"x": "PIRN_UNSET_${"}},
    }]});
    let faults = tools_of(open, Path::new("")).expect_err("a `${` without its `}` is a fault of the file");
    assert_eq!(faults[0].pointer, "/http/headersEnv/x");
    let unset = registry(
        &json!({}),
        json!({"http": {"url": "http://127.0.0.1:9", "headersEnv": {"x": "PIRN_NOT_SET"}}}),
    );
    assert!(
        call(&unset, json!({}))
            .expect_err("unset")
            .contains("PIRN_NOT_SET is not set")
    );
}

#[test]
fn a_secret_echoed_by_a_server_is_masked_in_results_and_errors() {
    // The licence of this package is a value with a long word that every test has in its environment.
    let secret = "Apache-2.0";
    for (status, more) in [
        ("200 OK", ""),
        ("400 Bad Request", ""),
        ("302 Found", "location: http://h/Apache-2.0\r\n"),
    ] {
        for body in [
            format!("{{\"sent\": \"{secret}\"}}"),
            format!("12345678{secret}"),
            secret.repeat(9),
        ] {
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let http = |url: &str| json!({"url": url, "headersEnv": {"x-key": "Bearer ${CARGO_PKG_LICENSE}"}});
            let (said, seen) = once(http, json!({}), vec![answer]);
            assert!(seen[0].has("x-key: Bearer MIT OR Apache-2.0"), "{seen:?}");
            let said = said.unwrap_or_else(|error| error);
            assert!(said.contains('*') && !said.contains("Apach"), "{status}: {said}");
        }
    }
}

#[test]
fn a_post_sends_the_arguments_not_used_in_the_url() {
    let http = |url: &str| json!({"method": "POST", "url": format!("{url}/{{{{a}}}}")});
    let (said, seen) = once(
        http,
        json!({"a": "x", "b": {"deep": [1]}}),
        vec![answer("200 OK", "ok")],
    );
    assert_eq!(said, Ok("ok".to_owned()));
    assert_eq!(seen[0].body, r#"{"b":{"deep":[1]}}"#);
    assert!(seen[0].has("content-type: application/json"));
}

#[test]
fn a_body_is_json_or_text_with_templates() {
    let json_body = |url: &str| json!({"method": "PUT", "url": url, "body": {"n": "{{a}}", "t": "n={{a}}", "gone": "{{c}}", "list": ["{{b}}", "{{c}}", 1, null]}});
    let (_, seen) = once(json_body, json!({"a": 3, "b": [true]}), vec![answer("200 OK", "")]);
    let sent: Value = serde_json::from_str(&seen[0].body).expect("JSON");
    assert_eq!(sent, json!({"n": 3, "t": "n=3", "list": [[true], 1, null]}));
    let text_body =
        |url: &str| json!({"method": "POST", "url": url, "body": "hello {{a}}", "headers": {"content-type": "text/x"}});
    let (_, seen) = once(text_body, json!({"a": "you"}), vec![answer("200 OK", "")]);
    assert_eq!(seen[0].body, "hello you");
    assert!(seen[0].has("content-type: text/x"));
}

#[test]
fn a_response_over_the_limit_is_truncated_without_reading_the_rest() {
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "0123456789".repeat(1_000_000));
    let (said, _) = once(|url| json!({ "url": url }), json!({}), vec![endless]);
    assert_eq!(said, Ok("012345678901\n[output cut: the first 12 bytes]".to_owned()));
}

#[test]
fn an_error_status_is_an_error_with_the_start_of_the_body() {
    let (said, _) = once(
        |url| json!({ "url": url }),
        json!({}),
        vec![answer("404 Not Found", "no such x")],
    );
    assert_eq!(said, Err("HTTP 404 Not Found\nno such x".to_owned()));
}

#[test]
fn a_redirect_is_followed_only_within_its_host() {
    let to = |place: &str| {
        format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let (said, seen) = once(
        |url| json!({ "url": url }),
        json!({}),
        vec![to("/other"), answer("200 OK", "there")],
    );
    assert_eq!(
        (said, seen[1].line.as_str()),
        (Ok("there".to_owned()), "GET /other HTTP/1.1")
    );
    let (said, _) = once(|url| json!({ "url": url }), json!({}), vec![to("http://127.0.0.2:9/x")]);
    assert!(
        said.expect_err("not followed")
            .contains("points to http://127.0.0.2:9/x, which is not followed")
    );
}

#[test]
fn a_refused_connection_is_an_error_without_the_url() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let tool = registry(
        &json!({}),
        json!({"http": {"url": format!("http://127.0.0.1:{port}/?key=hush")}}),
    );
    let error = call(&tool, json!({})).expect_err("nobody is there");
    assert!(
        error.contains("127.0.0.1 did not answer") && !error.contains("hush"),
        "{error}"
    );
}

#[test]
fn dropping_a_call_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let tool = registry(&json!({}), json!({"http": {"url": url}}));
    let (told, heard) = tokio::sync::oneshot::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a byte");
        told.send(()).expect("somebody waits");
        let mut rest = Vec::new();
        // Returns only when the client has disconnected.
        stream.read_to_end(&mut rest).map_or(0, |count| count)
    });
    runtime().block_on(async {
        let mut call = std::pin::pin!(calling(&tool, json!({})));
        tokio::select! {
            result = &mut call => panic!("it ended: {result:?}"),
            asked = heard => asked.expect("it was asked"),
        }
    });
    assert!(server.join().expect("it ends") > 0);
}
