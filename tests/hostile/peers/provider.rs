//! A provider on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pirn::tools::tool_fn;
use pirn::{Engine, Profile, RunErrorCode, RunReport, SubscriptionItem, ThreadStatus};
use serde_json::{Value, json};

use crate::scripts::now;

/// The key of every request; it occurs nowhere else.
const KEY: &str = "sk-hostile-0123456789abcdef";

/// Bound on the time that a bad answer can delay a run.
const SOON: Duration = Duration::from_mins(2);

pub(crate) const TESTS: &[(&str, fn())] = &[
    (
        "endless, huge, compressed or broken answers are errors with a message",
        bad_answers,
    ),
    ("a redirect to another host does not send the key there", redirects),
    ("the work for a reply is linear in its tool calls", many_calls),
    ("a key repeated in a reply is not shown", key_repeated),
    ("no log level shows a key", logs),
];

type Answer = Arc<dyn Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync>;

/// Gives every request this answer and counts the requests.
fn serve(answer: Answer) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port on loopback");
    let address = listener.local_addr().expect("bound");
    let count = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = Arc::clone(&answer);
            // Fails if the client disconnects.
            std::thread::spawn(move || take(&mut stream).and_then(|_| answer(&mut stream)).unwrap_or(()));
        }
    });
    (address, count)
}

/// Reads a request with its body; returns its head.
fn take(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
    reader.read_exact(&mut vec![0; length])?;
    Ok(head)
}

fn profile(address: SocketAddr, more: &Value) -> Profile {
    let mut profile = json!({
        "id": "m", "provider": "openai", "model": "some-model", "endpoint": format!("http://{address}/v1"),
        "retry": {"maxAttempts": 1}, "timeouts": {"firstTokenMs": 60_000, "idleMs": 60_000},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        profile[name] = value.clone();
    }
    serde_json::from_value(profile).expect("a profile")
}

fn engine(address: SocketAddr, more: &Value) -> Engine {
    let asks = json!({"id": "asks",
        "nodes": [{"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": {"prompt": "hi", "tools": ["look"], "maxToolRounds": 1, "onLimit": "answer"}},
            {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]});
    let plain = json!({"id": "plain", "nodes": [{"id": "s", "type": "START"}, {"id": "e", "type": "END"}],
        "edges": [{"from": "s", "to": "e"}]});
    let look = tool_fn("look", "looks", json!({"type": "object"}), |_| {
        std::future::ready(Ok("seen".to_owned()))
    });
    Engine::builder()
        .workflows(asks.to_string())
        .workflows(plain.to_string())
        .profiles([profile(address, more)])
        .model_keys(|_, _| Some(KEY.to_owned()))
        .tool(look)
        .arbiters(1)
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The report of a run and its events as text; another run must complete concurrently.
fn ask(engine: &Engine) -> (RunReport, String) {
    let mut asks = engine.run("asks");
    let events = asks.blocking_events(&[], 1 << 20);
    let begin = now();
    let run = asks.start().expect("it starts");
    let beside = engine.run("plain").start().expect("it starts").outcome_blocking();
    assert_eq!(beside.status, ThreadStatus::Completed);
    let report = (*run.outcome_blocking()).clone();
    run.wait_all_ended_blocking();
    assert!(begin.elapsed() < SOON, "it took {:?}", begin.elapsed());
    let mut said = json!(report).to_string();
    engine.shutdown_blocking(Duration::from_secs(5));
    for heard in events {
        if let SubscriptionItem::Event(event) = heard {
            said.push_str(&event.to_json().to_string());
        }
    }
    (report, said)
}

fn head(kind: &str, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}\r\n")
}

/// A head and `first`, then the results of `again` without end.
fn endless(
    kind: &'static str,
    more: &'static str,
    first: &'static str,
    again: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Answer {
    Arc::new(move |stream| {
        stream.write_all(head(kind, more).as_bytes())?;
        stream.write_all(first.as_bytes())?;
        for n in 0.. {
            stream.write_all(again(n).as_bytes())?;
        }
        Ok(())
    })
}

fn whole(kind: &'static str, more: &'static str, body: Vec<u8>) -> Answer {
    Arc::new(move |stream| {
        stream.write_all(head(kind, more).as_bytes())?;
        stream.write_all(&body)
    })
}

const STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Valid replies compressed with gzip. A client that decompressed them would also decompress one of a terabyte.
const PACKED: &[u8] = &[
    31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 13, 200, 177, 13, 128, 64, 8, 5, 208, 93, 126, 237, 4, 183, 138, 49, 134, 16,
    244, 40, 132, 139, 208, 17, 118, 215, 87, 190, 2, 79, 87, 150, 192, 216, 11, 143, 68, 208, 45, 24, 5, 118, 75, 177,
    196, 0, 161, 55, 92, 106, 26, 243, 124, 133, 194, 237, 207, 72, 95, 232, 163, 63, 111, 81, 79, 114, 64, 0, 0, 0,
];
const PACKED_STREAM: &[u8] = &[
    31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 75, 73, 44, 73, 180, 82, 168, 86, 74, 206, 200, 207, 76, 78, 45, 86, 178, 138,
    174, 86, 74, 73, 205, 41, 73, 84, 178, 2, 10, 230, 231, 149, 164, 230, 149, 40, 89, 41, 37, 42, 213, 234, 40, 165,
    101, 230, 101, 22, 103, 196, 23, 165, 38, 22, 231, 231, 1, 5, 139, 75, 242, 11, 148, 106, 99, 107, 185, 184, 82,
    192, 166, 68, 187, 248, 251, 185, 198, 114, 113, 1, 0, 70, 132, 12, 171, 84, 0, 0, 0,
];

/// Echoes the key in an error.
fn refused(stream: &mut TcpStream) -> std::io::Result<()> {
    let body = json!({"error": {"message": format!("{KEY} is no key, {}", KEY.repeat(50))}}).to_string();
    write!(
        stream,
        "HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn bad_answers() {
    let text = "x".repeat(1 << 16);
    let line = text.clone();
    let begun = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let answers: Vec<(&str, Answer, Value)> = vec![
        (
            "a line without an end",
            endless(STREAM, "", "data: ", move |_| line.clone()),
            json!({}),
        ),
        (
            "comments without an end",
            endless(STREAM, "", begun, |_| ": still here\n\n".repeat(4_096)),
            json!({}),
        ),
        (
            "calls without an end and without a name",
            endless(STREAM, "", "", |n| {
                let call =
                    |index: usize| json!({"choices": [{"delta": {"tool_calls": [{"index": index, "id": "c"}]}}]});
                (0..256)
                    .map(|more| format!("data: {}\n\n", call(n * 256 + more)))
                    .collect::<Vec<_>>()
                    .concat()
            }),
            json!({}),
        ),
        (
            "a body of a terabyte",
            endless(JSON, "Content-Length: 1000000000000\r\n", "\"", move |_| text.clone()),
            json!({}),
        ),
        (
            "headers without an end",
            {
                Arc::new(|stream: &mut TcpStream| {
                    stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
                    for n in 0.. {
                        stream.write_all(format!("X-{n}: {}\r\n", "y".repeat(1_000)).as_bytes())?;
                    }
                    Ok(())
                })
            },
            json!({}),
        ),
        (
            "a packed body",
            whole(JSON, "Content-Encoding: gzip\r\n", PACKED.to_vec()),
            json!({}),
        ),
        (
            "a packed stream",
            whole(STREAM, "Content-Encoding: gzip\r\n", PACKED_STREAM.to_vec()),
            json!({}),
        ),
        (
            "bytes that are no text",
            whole(STREAM, "", b"data: \xff\xfe\n\n".to_vec()),
            json!({}),
        ),
        (
            "no HTTP",
            Arc::new(|stream: &mut TcpStream| stream.write_all(&[0; 4_096])),
            json!({}),
        ),
        (
            "lists within lists",
            whole(JSON, "", deep.clone().into_bytes()),
            json!({}),
        ),
        (
            "lists within lists in a stream",
            whole(STREAM, "", format!("data: {deep}\n\n").into_bytes()),
            json!({}),
        ),
        (
            "half a chunk",
            whole(
                STREAM,
                "Transfer-Encoding: chunked\r\n",
                b"ffffffffffffffff\r\ndata".to_vec(),
            ),
            json!({}),
        ),
        (
            "a byte now and then",
            endless(STREAM, "", begun, |_| {
                std::thread::park_timeout(Duration::from_millis(20));
                ":".to_owned()
            }),
            json!({"timeouts": {"totalMs": 500}}),
        ),
        (
            "silence",
            Arc::new(|stream: &mut TcpStream| stream.read_to_end(&mut Vec::new()).map(drop)),
            json!({"timeouts": {"firstTokenMs": 300}}),
        ),
        ("the key in an error", Arc::new(refused), json!({})),
    ];
    for (name, answer, more) in answers {
        let (address, _) = serve(answer);
        let (report, said) = ask(&engine(address, &more));
        assert_eq!(report.status, ThreadStatus::Failed, "{name}");
        let error = report.error.as_ref().expect("an error");
        let cause = error.cause.as_ref().map_or(error.code, |cause| cause.code);
        assert!(
            [error.code, cause].contains(&RunErrorCode::ModelError),
            "{name}: {error:?}"
        );
        assert!(
            !said.contains(KEY) && !said.contains("0123456789abcdef"),
            "{name}: {said:.2000}"
        );
        println!("  {name}: {}", said_of(&report));
    }
}

fn said_of(report: &RunReport) -> String {
    let error = report
        .error
        .as_ref()
        .map(|error| error.cause.as_ref().unwrap_or(error).message.clone());
    error.unwrap_or_default().chars().take(120).collect()
}

fn redirects() {
    for status in [301, 302, 303, 307, 308] {
        let (elsewhere, came) = serve(Arc::new(|_: &mut TcpStream| Ok(())));
        let (address, asked) = serve(Arc::new(move |stream: &mut TcpStream| {
            write!(
                stream,
                "HTTP/1.1 {status} Elsewhere\r\nLocation: http://{elsewhere}/v1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
        }));
        let (report, said) = ask(&engine(address, &json!({})));
        assert_eq!(report.status, ThreadStatus::Failed);
        assert_eq!(
            (asked.load(Ordering::SeqCst), came.load(Ordering::SeqCst)),
            (1, 0),
            "{status}"
        );
        assert!(!said.contains(KEY), "{said}");
    }
}

/// Replies with the key: letter by letter, in one piece, and in a tool call.
fn key_repeated() {
    let frame = |delta: &Value, finish: &Value| {
        let choice = json!({"delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let text = |text: &str| frame(&json!({"content": text}), &Value::Null);
    let letters: Vec<String> = format!("it is {KEY}!")
        .chars()
        .map(|letter| text(&letter.to_string()))
        .collect();
    let function = json!({"name": KEY, "arguments": json!({"a": [KEY], KEY: 1}).to_string()});
    let calls = json!({"tool_calls": [{"index": 0, "id": KEY, "function": function}]});
    for (name, reply, content) in [
        ("by letters", letters.concat(), Some("it is ***!")),
        ("whole", text(&format!("{KEY} and {KEY}")), Some("*** and ***")),
        ("only its beginning", text(&KEY[..9]), Some(&KEY[..9])),
        ("in a call", frame(&calls, &json!("tool_calls")), None),
    ] {
        let body = format!("{reply}{}data: [DONE]\n\n", frame(&json!({}), &json!("stop")));
        let (address, _) = serve(whole(STREAM, "", body.into_bytes()));
        let (report, said) = ask(&engine(address, &json!({})));
        assert!(!said.contains(&KEY[3..]), "{name}: {said:.2000}");
        if let Some(content) = content {
            assert_eq!(report.output["content"], content, "{name}: {:?}", report.error);
        }
    }
}

fn logs() {
    let said = super::log::of(|| {
        for (name, answer) in [
            ("refused", refused as fn(&mut TcpStream) -> std::io::Result<()>),
            ("said", |stream| {
                let body = format!(
                    "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n: {KEY}\n\ndata: [DONE]\n\n"
                );
                stream.write_all(head(STREAM, "").as_bytes())?;
                stream.write_all(body.as_bytes())
            }),
        ] {
            let (report, _) = ask(&engine(serve(Arc::new(answer)).0, &json!({})));
            println!("  {name}: {:?}", report.status);
        }
    });
    assert!(
        said.contains("TRACE") && said.contains("hyper"),
        "it says all: {said:.2000}"
    );
    let place = said.find(&KEY[3..]);
    assert_eq!(
        place.map(|at| &said[at.saturating_sub(300)..at]),
        None,
        "the key follows"
    );
}

/// CPU time of the process for a run of one reply with `calls` tool calls.
fn work_of(calls: usize) -> Duration {
    let piece = |n: usize| {
        let call = json!({"index": n, "id": format!("c{n}"), "function": {"name": "look", "arguments": "{}"}});
        format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [call]}}]}))
    };
    let mut body: String = (0..calls).map(piece).collect();
    body.push_str("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n");
    let asked = AtomicUsize::new(0);
    let (address, _) = serve(Arc::new(move |stream: &mut TcpStream| {
        stream.write_all(head(STREAM, "").as_bytes())?;
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => stream.write_all(body.as_bytes()),
            _ => stream.write_all(b"data: {\"choices\":[{\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
        }
    }));
    let engine = engine(address, &json!({}));
    let run = engine.run("asks").start().expect("it starts");
    let before = computed();
    let report = run.outcome_blocking();
    let took = computed().saturating_sub(before);
    assert_eq!(report.status, ThreadStatus::Completed, "{:?}", report.error);
    engine.shutdown_blocking(Duration::from_secs(5));
    took
}

/// CPU time of all threads of this process.
fn computed() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a time")
}

fn many_calls() {
    // The minimum of several rounds, because other load on the machine only adds time.
    let least = |calls: usize, rounds: usize| (0..rounds).map(|_| work_of(calls)).min().expect("a round");
    least(100, 1);
    let (few, many) = (least(1_000, 4), least(10_000, 2));
    println!("  1,000 calls {few:?}, 10,000 calls {many:?}");
    assert!(
        many < few * 30,
        "{few:?} for 1,000 calls, {many:?} for 10,000: a square would be a hundredfold"
    );
}
