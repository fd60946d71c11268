//! Requests: valid ones of every route with random faults.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::BODY_BYTES;
use crate::chance::Chance;
use crate::world::encoded;

/// Path of the MCP server.
pub(super) const MCP: &str = "/mcp";

impl Chance {
    /// A text that no field expects.
    fn text(&mut self) -> String {
        match self.below(14) {
            0 => String::new(),
            1 => "x".repeat(300),
            2 => "x".repeat(5_000),
            3 => "\u{1f980}".repeat(1 + self.below(400)),
            4 => "\0".to_owned(),
            5 => "\u{202e}\u{feff}\r\n\t\u{7f}\"\\".to_owned(),
            6 => "../../etc/passwd".to_owned(),
            7 => "..".to_owned(),
            8 => "a/b".to_owned(),
            9 => "{{input.x}}".to_owned(),
            10 => "-1".to_owned(),
            11 => "__proto__".to_owned(),
            12 => "acme~x".to_owned(),
            _ => "nothing".to_owned(),
        }
    }

    /// JSON text of a value that no field expects. Some are not valid JSON.
    fn json(&mut self) -> String {
        match self.below(24) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => "-1".to_owned(),
            3 => "0".to_owned(),
            4 => "1e400".to_owned(),
            5 => "1e308".to_owned(),
            6 => "18446744073709551615".to_owned(),
            7 => "18446744073709551616".to_owned(),
            8 => "-9223372036854775809".to_owned(),
            9 => "0.1".to_owned(),
            10 => "9".repeat(1_000),
            11 => "\"\\ud800\"".to_owned(),
            12 => "\"\\u0000\"".to_owned(),
            13 => "\"\0\"".to_owned(),
            14 => "[]".to_owned(),
            15 => "{}".to_owned(),
            16 => {
                let depth = [2, 120, 125, 127, 128, 129, 5_000][self.below(7)];
                format!("{}{}", "[".repeat(depth), "]".repeat(depth))
            }
            17 => {
                let depth = [2, 60, 126, 128, 5_000][self.below(5)];
                format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
            }
            18 => format!("[{}1]", "[1],".repeat(2_000)),
            19 => format!("\"{}\"", "y".repeat(70_000)),
            20 => format!("{{\"{}\":1}}", "k".repeat(20_000)),
            21 => "NaN".to_owned(),
            _ => Value::from(self.text()).to_string(),
        }
    }
}

/// A call of the OpenAPI document, or one that it does not describe.
pub(super) struct Call {
    pub(super) method: String,
    pub(super) path: String,
    /// Names of the query parameters.
    pub(super) query: Vec<String>,
    /// Schema of the body.
    pub(super) body: Option<Value>,
    /// The responses of the document.
    pub(super) responses: Option<Map<String, Value>>,
}

impl Call {
    /// True if the call's answer is a stream that a client can resume.
    fn streams(&self) -> bool {
        let answer = self.responses.as_ref().and_then(|responses| responses.get("200"));
        self.method == "GET" && answer.is_some_and(|answer| answer["content"].get("text/event-stream").is_some())
    }
}

/// Returns every call of the document and those that it does not describe.
pub(super) fn calls(document: &Value) -> Vec<Call> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let described = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(|(method, call)| {
            let parameters = call["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names = parameters.iter().filter(|one| one["in"] == "query");
            Call {
                method: method.to_uppercase(),
                path: path.clone(),
                query: names
                    .filter_map(|one| one["name"].as_str().map(str::to_owned))
                    .collect(),
                body: call["requestBody"]["content"]["application/json"]
                    .get("schema")
                    .cloned(),
                responses: call["responses"].as_object().cloned(),
            }
        })
    });
    let mut calls: Vec<Call> = described.collect();
    assert!(calls.len() > 30, "the document describes the routes");
    let others = [
        ("GET", "/openapi.json"),
        ("POST", MCP),
        ("POST", MCP),
        ("GET", MCP),
        ("DELETE", MCP),
        ("GET", "/"),
        ("GET", "/studio/"),
        ("GET", "/studio/{id}"),
        ("GET", "/{id}"),
        ("GET", "/v1/{id}"),
    ];
    calls.extend(others.map(|(method, path)| Call {
        method: method.to_owned(),
        path: path.to_owned(),
        query: Vec::new(),
        body: None,
        responses: None,
    }));
    calls
}

/// Ids that the service knows.
#[derive(Default)]
pub(super) struct Ids {
    pub(super) runs: Vec<String>,
    pub(super) questions: Vec<String>,
    /// Runs with the ids of their model calls.
    pub(super) effects: Vec<(String, String)>,
    pub(super) sessions: Vec<String>,
    pub(super) mcp_session: String,
}

/// A request as it is sent.
pub(super) struct Asked {
    pub(super) call: usize,
    pub(super) method: String,
    /// The head and the body.
    pub(super) bytes: Vec<u8>,
    /// True if the body has fewer bytes than announced, or more than are accepted: the service may close the connection.
    pub(super) is_incomplete: bool,
}

impl Asked {
    /// The request for a message of a failure.
    pub(super) fn shown(&self) -> String {
        let shown: String = self
            .bytes
            .iter()
            .take(1_500)
            .flat_map(|byte| byte.escape_ascii())
            .map(char::from)
            .collect();
        shown.replace("\\r\\n", "\n")
    }
}

pub(super) struct Requests {
    pub(super) chance: Chance,
    pub(super) calls: Vec<Call>,
    pub(super) schemas: Value,
    pub(super) ids: Ids,
    /// Index of the model call of a path.
    pub(super) effect: usize,
}

impl Requests {
    fn known(&mut self, name: &str, path: &str) -> String {
        let workflows = [
            "echo",
            "asks",
            "gated",
            "chat",
            "two-people",
            "careful",
            "guide",
            "paid",
            "steps",
            "broken",
        ];
        let of_workflows = name == "workflow" || path.starts_with("/v1/workflows");
        let ids = match name {
            _ if path.ends_with("{effect}") && !self.ids.effects.is_empty() => {
                if name == "id" {
                    self.effect = self.chance.below(self.ids.effects.len());
                }
                let (run, effect) = &self.ids.effects[self.effect];
                return if name == "id" { run } else { effect }.clone();
            }
            "order" => return (*self.chance.one_of(&["0:0", "1:1", "0:1,1:0", ""])).to_owned(),
            "chat" => &self.ids.sessions,
            _ if of_workflows => return (*self.chance.one_of(&workflows)).to_owned(),
            _ if path.starts_with("/v1/sessions") => &self.ids.sessions,
            _ if path.starts_with("/v1/interactions") => &self.ids.questions,
            _ => &self.ids.runs,
        };
        if ids.is_empty() {
            "nothing".to_owned()
        } else {
            self.chance.one_of(ids).clone()
        }
    }

    fn run(&mut self) -> String {
        self.known("id", "/v1/runs")
    }

    /// A segment of a path.
    fn segment(&mut self, name: &str, path: &str) -> String {
        let known = self.known(name, path);
        match self.chance.below(40) {
            0 => encoded(&self.chance.text()),
            1 => ".".to_owned(),
            2 => "..".to_owned(),
            3 => "%2e%2e".to_owned(),
            4 => "%2F".to_owned(),
            5 => "%00".to_owned(),
            6 => "%ff%fe".to_owned(),
            7 => "%".to_owned(),
            8 => "%zz".to_owned(),
            9 => "a".repeat(*self.chance.one_of(&[129, 4_000, 30_000])),
            10 => format!("{known}/"),
            11 => format!("{known}%20"),
            12 => format!("{known}.0.0"),
            13 => encoded(&"\u{e9}".repeat(1 + self.chance.below(100))),
            _ => encoded(&known),
        }
    }

    fn target(&mut self, call: usize) -> String {
        let (template, names) = (self.calls[call].path.clone(), self.calls[call].query.clone());
        let mut target = String::new();
        for (place, part) in template.split('/').skip(1).enumerate() {
            target.push('/');
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) => target.push_str(&self.segment(name, &template)),
                None if place == 0 || !self.chance.once_in(60) => target.push_str(part),
                None => target.push_str(&part.to_uppercase()),
            }
        }
        let mut query = Vec::new();
        for name in &names {
            if self.chance.once_in(4) {
                query.push(format!("{name}={}", self.parameter(name)));
                if self.chance.once_in(10) {
                    query.push(format!("{name}={}", self.parameter(name)));
                }
            }
        }
        if self.chance.once_in(20) {
            let odd = ["unknown=1", "=", "&&&", "%", "a[b]=c", "?", "wait", "limit=1&limit=2"];
            query.push((*self.chance.one_of(&odd)).to_owned());
        }
        if !query.is_empty() {
            let _ = write!(target, "?{}", query.join("&"));
        }
        target
    }

    fn parameter(&mut self, name: &str) -> String {
        let run = self.run();
        let valid: &[&str] = match name {
            "status" => &["RUNNING", "COMPLETED", "WAITING", "queued", "CANCELLED"],
            "types" => &["NODE_COMPLETED,CUSTOM", "LLM_TOKEN", ",", "node_completed"],
            "wait" => &["0", "0.01", "1e-3", "0.05"],
            "after" => &["0", "1", "1.1", "9999999999999~x", "desk"],
            "limit" => &["1", "2", "1000"],
            "text" => &["echo", "x"],
            "workflow" => &["echo", "asks"],
            "session" => &["desk", "talk"],
            "threadId" => &["thread-1"],
            "runId" => &["r"],
            _ => &["0", "1", "5", "true", "false"],
        };
        match self.chance.below(10) {
            0 => encoded(&self.chance.text()),
            1 => (*self.chance.one_of(&[
                "-1",
                "1e400",
                "NaN",
                "inf",
                "18446744073709551616",
                "18446744073709551615",
                "0x1",
                "1e19",
                "-0",
            ]))
            .to_owned(),
            2 => encoded(&run),
            3 => "%ff".to_owned(),
            4 => String::new(),
            _ => (*self.chance.one_of(valid)).to_owned(),
        }
    }

    /// A valid body of a call.
    fn body(&mut self, call: usize) -> Value {
        let run = self.run();
        let question = self.known("id", "/v1/interactions");
        let session = (*self.chance.one_of(&["desk", "talk", "other"])).to_owned();
        let user = json!({"id": format!("m{}", self.chance.below(9)), "role": "user", "content": "hello",
            "parts": [{"type": "text", "text": "hello"}]});
        let part = json!({"type": "tool-location", "toolCallId": "g1", "state": "output-available", "output": "Oslo"});
        let function = json!({"id": "g1", "type": "function", "function": {"name": "location", "arguments": "{}"}});
        let reply = json!({"id": run, "role": "assistant", "content": "hi", "parts": [part], "toolCalls": [function]});
        let result = json!({"id": "r", "role": "tool", "toolCallId": "g1", "content": "Oslo"});
        let messages = match self.chance.below(4) {
            0 => json!([user, reply]),
            1 => json!([user, reply, result]),
            2 => json!([user, {"id": "a", "role": "assistant", "content": "hi"}, user]),
            _ => json!([user]),
        };
        let tools = json!([{"name": "location", "description": "Where.", "parameters": {"type": "object"}}]);
        let steering = self
            .chance
            .one_of(&[json!(false), json!(true), json!("whenIdle"), Value::Null])
            .clone();
        match self.calls[call].path.as_str() {
            "/v1/runs" => {
                let workflow = self.known("workflow", "");
                let fields = [
                    ("input", json!({"n": 2, "message": "hello"})),
                    (
                        "conversation",
                        json!([{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]),
                    ),
                    ("session", json!(session)),
                    ("runId", json!(format!("own-{}", self.chance.below(1_000)))),
                    ("metadata", json!({"user": "ada"})),
                    ("clientTools", tools),
                ];
                let mut body = json!({"workflow": workflow});
                for (name, value) in fields {
                    if self.chance.once_in(3) {
                        body[name] = value;
                    }
                }
                // Both fields are refused without another part of the request, which it may lack.
                if self.chance.once_in(3) {
                    body["keepOnFailure"] = json!(body["session"].is_string());
                    body["cancelOnDisconnect"] = json!(self.chance.once_in(2));
                }
                body
            }
            "/v1/interactions/{id}" => self
                .chance
                .one_of(&[
                    json!({"answer": "red"}),
                    json!({"answer": "allow", "by": "ada"}),
                    json!({"answer": {"decision": "allow", "arguments": {"amount": 3}}}),
                    json!({"answer": {"output": 1}}),
                ])
                .clone(),
            "/v1/agui/{workflow}" => {
                let mut body = json!({"threadId": "thread-1", "runId": "r", "messages": messages, "tools": tools, "state": {"a": 1},
                    "context": [], "forwardedProps": {"steering": steering}});
                if self.chance.once_in(3) {
                    let id = format!("{question}@{}", self.chance.below(9));
                    body["resume"] = json!([{"interruptId": id, "status": "resolved", "payload": "red"}]);
                }
                body
            }
            "/v1/chat/{workflow}" => json!({"id": session, "messages": messages, "tools": tools, "steering": steering}),
            "/v1/runs/{id}/cancel" => json!({"reason": "enough"}),
            "/v1/runs/{id}/emit" => json!({"name": "paid", "data": {"amount": 3}}),
            "/v1/runs/{id}/messages" => json!({"message": "hello", "when": "whenIdle", "id": "m1"}),
            "/v1/runs/{id}/pin" => json!({"section": "todo", "value": ["x"]}),
            "/v1/runs/{id}/fork" => match self.chance.below(3) {
                0 => json!({"step": 1}),
                1 => json!({"step": 0, "runId": "fork-1", "set": {"n": 3}, "input": {"n": 1}}),
                _ => json!({"step": 0, "workflows": [{"id": "echo", "nodes": [{"id": "start", "type": "START"},
                    {"id": "end", "type": "END"}], "edges": [{"from": "start", "to": "end"}]}]}),
            },
            "/v1/workflows/{id}/orders" | "/v1/workflows/{id}/orders/{order}" => {
                json!({"input": {"n": 1}, "maxOrders": 5})
            }
            MCP => {
                let params = match self.chance.below(5) {
                    0 => (
                        "initialize",
                        json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
                        "clientInfo": {"name": "x", "version": "1"}}),
                    ),
                    1 => ("tools/list", json!({})),
                    2 => ("ping", json!({})),
                    3 => (
                        "tools/call",
                        json!({"name": self.known("workflow", ""), "arguments": {"n": 1},
                        "_meta": {"progressToken": 1}}),
                    ),
                    _ => (
                        "tools/call",
                        json!({"name": "asks", "arguments": {}, "requestState": format!("{run}@1"),
                        "inputResponses": {question: {"action": "accept", "content": {"answer": "red"}}}}),
                    ),
                };
                json!({"jsonrpc": "2.0", "id": 7, "method": params.0, "params": params.1})
            }
            _ => match self.calls[call].body.clone() {
                Some(schema) => self.of_schema(&schema, 0),
                None => json!({}),
            },
        }
    }

    /// A value of a schema of the document, in which constraints of strings and numbers are ignored.
    fn of_schema(&mut self, schema: &Value, depth: usize) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            let named = self.schemas[name].clone();
            return self.of_schema(&named, depth + 1);
        }
        for alternatives in ["oneOf", "anyOf", "allOf"] {
            if let Some(all) = schema[alternatives].as_array().filter(|all| !all.is_empty()) {
                let one = self.chance.one_of(all).clone();
                return self.of_schema(&one, depth + 1);
            }
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.chance.one_of(kinds).clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let mut object = Map::new();
                for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                    let is_required = required.iter().any(|one| one == name.as_str());
                    if is_required || self.chance.once_in(2) {
                        object.insert(name.clone(), self.of_schema(field, depth + 1));
                    }
                }
                Value::Object(object)
            }
            Some("array") if depth < 6 => {
                let items = (0..self.chance.below(3)).map(|_| self.of_schema(&schema["items"], depth + 1));
                Value::Array(items.collect())
            }
            Some("string") => json!(self.chance.one_of(&["red", "echo", "paid", "todo", "desk", "whenIdle"])),
            Some("integer" | "number") => json!(self.chance.below(4)),
            Some("boolean") => json!(self.chance.once_in(2)),
            _ => self
                .chance
                .one_of(&[Value::Null, json!(1), json!("x"), json!({"a": [1]}), json!([])])
                .clone(),
        }
    }

    /// Bytes of a body, which may be damaged.
    fn body_bytes(&mut self, call: usize) -> Vec<u8> {
        let mut value = match self.calls[call].body.clone() {
            Some(schema) if self.chance.once_in(8) => self.of_schema(&schema, 0),
            _ => self.body(call),
        };
        let mut raw = Vec::new();
        if self.chance.once_in(2) {
            for _ in 0..=self.chance.below(3) {
                self.mutate(&mut value, &mut raw);
            }
        }
        let mut text = value.to_string();
        // The last one first: its text may contain earlier ones.
        for (number, raw) in raw.iter().enumerate().rev() {
            text = text.replace(&format!("\"{}\"", hole(number)), raw);
        }
        let mut bytes = text.into_bytes();
        match self.chance.below(60) {
            0 => bytes.truncate(self.chance.below(bytes.len() + 1)),
            1 => {
                let odd = *self
                    .chance
                    .one_of(&[0_u8, 0xff, 0xc0, b'"', b'{', b'}', b'\\', b',', 0x7f]);
                bytes.insert(self.chance.below(bytes.len() + 1), odd);
            }
            2 => bytes.clear(),
            3 => bytes.splice(0..0, [0xef, 0xbb, 0xbf]).for_each(drop),
            4 => bytes.extend_from_within(..),
            5 => {
                let byte = self.chance.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(byte) {
                    *byte ^= 1 << self.chance.below(8);
                }
            }
            6 if self.chance.once_in(4) => bytes.resize(BODY_BYTES + 1, b' '),
            _ => {}
        }
        bytes
    }

    /// Replaces, removes, renames or repeats a part of a value. Text that is no JSON value is added to `raw`, and its hole to the value.
    fn mutate(&mut self, value: &mut Value, raw: &mut Vec<String>) {
        let mut pointers = Vec::new();
        collect(value, String::new(), &mut pointers);
        let pointer = self.chance.one_of(&pointers).clone();
        let place = value.pointer_mut(&pointer).expect("a place");
        let mut fill = |text: String| {
            raw.push(text);
            Value::from(hole(raw.len() - 1))
        };
        match (self.chance.below(8), &mut *place) {
            (0, Value::Object(fields)) if !fields.is_empty() => {
                let names: Vec<String> = fields.keys().cloned().collect();
                fields.remove(self.chance.one_of(&names));
            }
            (1, Value::Object(fields)) => {
                fields.insert(self.chance.text(), fill(self.chance.json()));
            }
            (2, Value::Object(fields)) if !fields.is_empty() => {
                let names: Vec<String> = fields.keys().cloned().collect();
                let name = self.chance.one_of(&names);
                let again = format!(",{}:{}}}", json!(name), self.chance.json());
                let text = place.to_string();
                let text = text.strip_suffix('}').unwrap_or_default().to_owned() + &again;
                *place = fill(text);
            }
            (3, Value::Object(fields)) => {
                let values = fields.values().cloned().collect();
                *place = Value::Array(values);
            }
            (4, Value::Array(items)) => {
                let copies = self.chance.below(200);
                items.extend(vec![items.first().cloned().unwrap_or_default(); copies]);
            }
            (5, Value::String(text)) => text.push_str(&self.chance.text()),
            _ => *place = fill(self.chance.json()),
        }
    }

    /// Header lines, without those of the body.
    fn headers(&mut self, call: usize) -> Vec<u8> {
        let path = self.calls[call].path.clone();
        let mut headers = Vec::new();
        let mut add = |name: &str, value: &[u8]| {
            headers.extend_from_slice(name.as_bytes());
            headers.extend_from_slice(b": ");
            headers.extend_from_slice(value);
            headers.extend_from_slice(b"\r\n");
        };
        let accepts = match path.as_str() {
            MCP => "application/json, text/event-stream",
            "/v1/runs" if self.chance.once_in(5) => "text/event-stream",
            _ => "*/*",
        };
        if !self.chance.once_in(10) {
            add("accept", accepts.as_bytes());
        }
        if path == MCP && !self.chance.once_in(3) {
            add("mcp-session-id", self.ids.mcp_session.as_bytes());
        }
        let names = [
            "accept",
            "idempotency-key",
            "last-event-id",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "origin",
            "host",
            "authorization",
            "pirn-forwarded",
            "x-pirn-studio",
            "if-none-match",
            "if-match",
            "if-modified-since",
            "range",
            "content-encoding",
            "accept-encoding",
            "access-control-request-method",
            "access-control-request-headers",
            "connection",
            "expect",
            "cookie",
            "traceparent",
            "x-forwarded-for",
            "x-http-method-override",
        ];
        let mut chosen = Vec::new();
        if self.chance.once_in(4) {
            for _ in 0..=self.chance.below(3) {
                chosen.push(*self.chance.one_of(&names));
            }
        }
        // The headers that the handlers of these calls read.
        let read = match &self.calls[call] {
            call if call.streams() => Some("last-event-id"),
            call if call.path == "/v1/runs" && call.method == "POST" => Some("idempotency-key"),
            _ => None,
        };
        chosen.extend(read.filter(|_| self.chance.once_in(2)));
        for name in chosen {
            let value: Vec<u8> = match self.chance.below(14) {
                0 => Vec::new(),
                1 => b"\xff\xfe".to_vec(),
                2 => vec![b'x'; *self.chance.one_of(&[256, 4_000, 31_000])],
                3 => b"-1".to_vec(),
                4 => b"18446744073709551616".to_vec(),
                5 => b"18446744073709551615.18446744073709551615".to_vec(),
                6 => b"0".to_vec(),
                7 => b"1.1".to_vec(),
                8 => b"\t*/*;q=x,,".to_vec(),
                9 => b"http://evil.example".to_vec(),
                10 => "\u{e9}\u{1f980}".as_bytes().to_vec(),
                11 => b"text/event-stream".to_vec(),
                12 => b"key-1".to_vec(),
                _ => b"100-continue".to_vec(),
            };
            add(name, &value);
        }
        headers
    }

    pub(super) fn next(&mut self) -> Asked {
        let mut call = self.chance.below(self.calls.len());
        if self.calls[call].method == "GET" && self.chance.once_in(2) {
            // Requests with a body have more faults to make.
            let has_body: Vec<usize> = (0..self.calls.len())
                .filter(|call| self.calls[*call].method == "POST")
                .collect();
            call = *self.chance.one_of(&has_body);
        }
        let mut method = self.calls[call].method.clone();
        if self.chance.once_in(25) {
            let others = [
                "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PURGE",
            ];
            (*self.chance.one_of(&others)).clone_into(&mut method);
        }
        let target = self.target(call);
        let has_body = method != "GET" || self.chance.once_in(20);
        let body = if has_body { self.body_bytes(call) } else { Vec::new() };
        let mut bytes = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
        bytes.extend(self.headers(call));
        if has_body && !self.chance.once_in(60) {
            let odd = [
                "text/plain",
                "application/json; charset=utf-16",
                "",
                "application/x-www-form-urlencoded",
                "a+json",
                "\u{e9}",
            ];
            let kind = if self.chance.once_in(30) {
                *self.chance.one_of(&odd)
            } else {
                "application/json"
            };
            bytes.extend(format!("content-type: {kind}\r\n").into_bytes());
        }
        let mut is_incomplete = body.len() > BODY_BYTES;
        if has_body && self.chance.once_in(15) {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n");
            for chunk in body.chunks(1 + self.chance.below(5_000)) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            let lacks = usize::from(has_body && self.chance.once_in(60));
            is_incomplete |= lacks > 0;
            bytes.extend(format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len() + lacks).into_bytes());
            bytes.extend(body);
        }
        Asked {
            call,
            method,
            bytes,
            is_incomplete,
        }
    }
}

/// The string that stands for raw text in a value.
fn hole(number: usize) -> String {
    format!("@raw{number}@")
}

/// Collects the pointers of a value and of all values in it.
fn collect(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(field, format!("{pointer}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                collect(item, format!("{pointer}/{place}"), found);
            }
        }
        _plain => {}
    }
    found.push(pointer);
}
