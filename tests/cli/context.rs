//! `pirn context`.

use serde_json::{Value, json};

use crate::command::{Ended, pirn_with};

fn ask(question: &str, input: &Value) -> Ended {
    pirn_with(input.to_string().as_bytes(), &["context", question])
}

fn good(question: &str, input: &Value) -> Value {
    let ended = ask(question, input);
    assert_eq!(
        ended.code,
        Some(0),
        "{question} {input}: {}{}",
        ended.stdout,
        ended.stderr
    );
    ended.json()
}

/// Parses the notation of the cases: `u`, `a[1,2]`, `t:1`, `system:S`.
fn message(text: &str) -> Value {
    if let Some((_, ids)) = text.trim_end_matches(']').split_once('[') {
        let calls: Vec<Value> = ids
            .split(',')
            .map(|id| json!({"id": id, "name": "look", "arguments": {}}))
            .collect();
        return json!({"role": "assistant", "content": null, "toolCalls": calls});
    }
    if let Some(id) = text.strip_prefix("t:") {
        return json!({"role": "tool", "content": "found", "toolCallId": id});
    }
    let (role, content) = text.split_once(':').unwrap_or((text, text));
    let role = match role.as_bytes().first() {
        Some(b's') => "system",
        Some(b'a') => "assistant",
        _ => "user",
    };
    json!({"role": role, "content": content})
}

fn messages(texts: &[&str]) -> Value {
    texts.iter().map(|text| message(text)).collect()
}

fn contents(answer: &Value) -> Vec<String> {
    let all = answer["messages"].as_array().expect("messages");
    all.iter()
        .map(|one| one["content"].as_str().expect("content").to_owned())
        .collect()
}

#[test]
fn select_gives_the_selected_messages() {
    let history = messages(&["m0", "m1", "m2", "m3"]);
    let marks = json!({"originalIndices": [], "batchBoundaries": [0, 2], "boundaryToBatch": [0, 1], "currentBatch": 1});
    let cases = [
        (
            "C21",
            json!({"messages": history, "options": {"lastN": 2}}),
            vec!["m2", "m3"],
        ),
        (
            "C28",
            json!({"messages": history, "markMap": marks, "options": true}),
            vec!["m2", "m3"],
        ),
        (
            "C29",
            json!({"messages": history, "markMap": marks, "options": {"lastN": 3}}),
            vec!["m2", "m3"],
        ),
        ("false", json!({"messages": history, "options": false}), vec![]),
    ];
    for (id, input, expected) in cases {
        assert_eq!(contents(&good("select", &input)), expected, "{id}");
    }
}

#[test]
fn select_returns_messages_unchanged() {
    let whole = json!({
        "id": "m", "role": "assistant", "content": "c", "subAgentInternal": true, "metadata": {"k": [1, null]},
        "toolCalls": [{"id": "1", "name": "look", "arguments": {"a": 1.5}}],
    });
    let answer = good("select", &json!({"messages": [whole], "options": true}));
    assert_eq!(answer, json!({"messages": [whole]}));
}

#[test]
fn layout_inserts_pinned_messages_and_repairs_nothing() {
    let pinned = json!({"role": "R", "todo": "T", "usefulInfo": "I", "folderNotes": "N"});
    let input =
        json!({"history": [message("system:S")], "pending": message("user:hi"), "pinned": pinned, "agent": "main"});
    let answer = good("layout", &input);
    assert_eq!(
        contents(&answer),
        ["S", "## Agent Role Definition\n\nR", "T", "I", "N", "hi"],
        "I12"
    );
    assert_eq!(answer["insertedAt"], 1, "I12");

    let history = messages(&["s", "u", "u", "a[1]", "t:1", "t:x", "a", "u", "a"]);
    let answer = good(
        "layout",
        &json!({"history": history, "pinned": {"role": "R", "todo": "T"}, "agent": "sub"}),
    );
    assert_eq!(answer["insertedAt"], 3, "I08");
    assert_eq!(
        answer["messages"].as_array().map(Vec::len),
        Some(11),
        "the orphan stays"
    );
    let answer = good(
        "layout",
        &json!({"history": history, "pinned": {"todo": "T"}, "agent": "main", "fromEnd": 1}),
    );
    assert_eq!(answer["insertedAt"], 8);
    let answer = good("layout", &json!({"history": history, "pinned": {}, "agent": "main"}));
    assert_eq!(
        answer,
        json!({"messages": good("select", &json!({"messages": history, "options": true}))["messages"], "insertedAt": null}),
        "I13"
    );
}

#[test]
fn blocks_include_their_first_and_last_message() {
    let cases: [(&str, &[&str], Value); 4] = [
        ("I18", &[], json!([])),
        ("I20", &["a[1]", "t:1", "u", "a[2]", "t:2"], json!([[0, 1], [3, 4]])),
        ("I21", &["u", "a[1,2]", "t:1", "u"], json!([[1, 2]])),
        ("I24", &["u", "a[1]", "t:9", "t:1", "a"], json!([[1, 3]])),
    ];
    for (id, history, expected) in cases {
        assert_eq!(
            good("blocks", &json!({"messages": messages(history)})),
            json!({"blocks": expected}),
            "{id}"
        );
    }
}

#[test]
fn compact_gives_a_compression_result() {
    let input = json!({
        "threadId": "t", "workflowId": "w", "tokensUsed": 100, "tokenLimit": 50,
        "messages": messages(&["s", "u1", "a1", "u2", "a2", "u3"]),
        "markMap": {"originalIndices": [], "batchBoundaries": [0], "boundaryToBatch": [0], "currentBatch": 0},
        "compressionConfig": {"strategy": "keep_recent", "parameters": {"count": 3}},
    });
    let answer = good("compact", &input);
    assert_eq!(contents(&answer), ["u2", "a2", "u3"], "H09");
    assert_eq!(
        (&answer["stats"]["originalCount"], &answer["stats"]["compressedCount"]),
        (&json!(6), &json!(3)),
        "H09"
    );

    let long = "user:".to_owned() + &"word ".repeat(200);
    let input = json!({
        "messages": messages(&["s", &long, "a1", "u2", "a2"]),
        "compressionConfig": {"strategy": "summarize", "parameters": {"keepRecent": 2}},
    });
    let answer = good("compact", &input);
    assert_eq!(answer["messages"].as_array().map(Vec::len), Some(4));
    assert_eq!(answer["messages"][1]["metadata"]["summaryOf"]["count"], 2);
    let again = json!({"messages": answer["messages"], "markMap": answer["markMap"], "compressionConfig": input["compressionConfig"]});
    assert_eq!(good("compact", &again)["messages"], answer["messages"], "twice is once");
}

#[test]
fn a_compacted_conversation_has_the_summary_of_a_run() {
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "The parcel went to Turku. It has not come. The weather is fine."},
        {"role": "assistant", "content": "The parcel waits in Turku. It needs a form. Cats sleep."},
        {"role": "user", "content": "Which form does the parcel in Turku need? Nothing else matters to me today, whatever you say."},
        {"role": "assistant", "content": "Form 7B."},
    ]);
    let config = json!({"strategy": "summarize", "parameters": {"keepRecent": 1}});
    let answer = good("compact", &json!({"messages": messages, "compressionConfig": config}));
    let history = serde_json::from_value::<Vec<pirn::Message>>(messages).expect("messages");
    let compress = json!({"operation": "compress", "strategy": "summarize", "parameters": {"keepRecent": 1}});
    let flow = json!({"id": "w", "nodes": [
        {"id": "a", "type": "START"}, {"id": "b", "type": "CONTEXT_PROCESSOR", "config": compress}, {"id": "c", "type": "END"},
    ], "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]});
    let engine = pirn::Engine::builder()
        .workflows(flow.to_string())
        .build()
        .expect("valid");
    let report = engine
        .run("w")
        .conversation(history)
        .start()
        .expect("admitted")
        .outcome_blocking();
    let marks = &report.conversation.mark_map;
    let from = marks.visible(report.conversation.messages.len())[0].start;
    let visible: Vec<&str> = report.conversation.messages[from..]
        .iter()
        .map(|one| one.content.as_str())
        .collect();
    assert_eq!(contents(&answer), visible);
    assert!(visible[1].contains("Turku") && visible.len() == 3, "{visible:?}");
}

#[test]
fn a_conversation_is_converted_to_another_format() {
    let written = json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "t", "args": {"n": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "t", "response": {"output": "one"}}}]},
    ]});
    let convert = |more: &[&str], input: &str| {
        let args = [&["context", "convert", "-"], more].concat();
        pirn_with(input.as_bytes(), &args)
    };
    let ended = convert(&["--to", "openai"], &written.to_string());
    let openai: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        openai["messages"][1]["tool_calls"][0]["function"]["arguments"],
        "{\"n\":1}"
    );
    let back = convert(&["--from", "openai", "--to", "gemini"], &ended.stdout);
    assert_eq!(serde_json::from_str::<Value>(&back.stdout).expect("JSON"), written);
    let refused = convert(&["--to", "pirn"], "{\"messages\": 7}");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stdout.contains("INVALID_CONVERSATION"), "{}", refused.stdout);
}

#[test]
fn marks_reflect_the_given_operations() {
    let answer = good("marks", &json!({"length": 10, "operations": [{"startNewBatch": 5}]}));
    assert_eq!(answer["visible"], json!([5, 10]), "D02");
    assert_eq!(answer["markMap"]["batchBoundaries"], json!([0, 5]), "D02");
    assert_eq!(answer["markMap"]["boundaryToBatch"], json!([0, 1]), "D02");
    assert_eq!(answer["markMap"]["currentBatch"], 1, "D02");

    let input = json!({"length": 10, "markMap": answer["markMap"], "operations": [{"rollbackToBatch": 0}]});
    let plain = json!({"originalIndices": [], "batchBoundaries": [0], "boundaryToBatch": [0], "currentBatch": 0});
    assert_eq!(
        good("marks", &input),
        json!({"markMap": plain, "visible": [0, 10]}),
        "D03"
    );

    let operations = json!([{"startNewBatch": 5}, {"append": 2}]);
    let answer = good("marks", &json!({"length": 5, "operations": operations}));
    assert_eq!(answer["visible"], json!([5, 7]), "D19");
    let input = json!({"length": 7, "markMap": answer["markMap"], "operations": [{"rollbackToBatch": 0}]});
    assert_eq!(
        good("marks", &input)["visible"],
        json!([0, 5]),
        "D19: also where the map came from elsewhere"
    );

    assert_eq!(
        good("marks", &json!({"length": 0})),
        json!({"markMap": plain, "visible": [0, 0]}),
        "D01"
    );
}

#[test]
fn count_counts_each_message_once() {
    assert_eq!(
        good("count", &json!({"messages": []})),
        json!({"tokens": 0, "perMessage": []}),
        "H03"
    );
    let empty = json!({"messages": [{"role": "user", "content": ""}]});
    assert_eq!(good("count", &empty), json!({"tokens": 4, "perMessage": [4]}), "H04");
    let exact = json!({"messages": [message("user:hello world"), message("u")], "model": "gpt-4o"});
    let answer = good("count", &exact);
    assert_eq!(answer, json!({"tokens": 11, "perMessage": [6, 5]}));
}

#[test]
fn invalid_input_exits_1_with_its_location() {
    let cases = [
        (
            "select",
            json!({"messages": [], "options": {}}),
            "INVALID_HISTORY_OPTIONS",
            "/options",
        ),
        (
            "select",
            json!({"messages": [], "options": {"lastN": -1}}),
            "INVALID_HISTORY_OPTIONS",
            "/options/lastN",
        ),
        (
            "select",
            json!({"messages": [], "options": {"range": {"start": 3, "end": 3}}}),
            "INVALID_HISTORY_OPTIONS",
            "/options/range",
        ),
        (
            "select",
            json!({"messages": [{"role": "robot"}], "options": true}),
            "INVALID_INPUT",
            "/messages/0/role",
        ),
        ("select", json!({"messages": []}), "INVALID_INPUT", ""),
        (
            "select",
            json!({"messages": [], "options": true, "markMap": {"batchBoundaries": [0, 9], "boundaryToBatch": [0, 1], "currentBatch": 1}}),
            "INVALID_MARK_MAP",
            "/markMap/batchBoundaries/1",
        ),
        (
            "layout",
            json!({"history": [], "pinned": {}, "agent": "other"}),
            "INVALID_INPUT",
            "/agent",
        ),
        (
            "layout",
            json!({"history": [], "pinned": {}, "agent": "main", "fromEnd": -1}),
            "INVALID_INPUT",
            "/fromEnd",
        ),
        ("blocks", json!([]), "INVALID_INPUT", ""),
        (
            "compact",
            json!({"messages": [], "compressionConfig": {"strategy": "keep_recent", "parameters": {"count": "x"}}}),
            "INVALID_COMPRESSION_PARAMETERS",
            "/compressionConfig/parameters/count",
        ),
        (
            "marks",
            json!({"length": 3, "operations": [{"startNewBatch": 4}]}),
            "INVALID_BOUNDARY",
            "/operations/0",
        ),
        (
            "marks",
            json!({"length": 3, "operations": [{"append": 1}, {"rollbackToBatch": 7}]}),
            "UNKNOWN_BATCH",
            "/operations/1",
        ),
        (
            "marks",
            json!({"length": 3, "operations": [{"append": u64::MAX}]}),
            "INVALID_INPUT",
            "/operations/0",
        ),
        ("marks", json!({"length": -3}), "INVALID_INPUT", "/length"),
        ("count", json!({"messages": 1}), "INVALID_INPUT", "/messages"),
    ];
    for (question, input, code, pointer) in cases {
        let ended = ask(question, &input);
        let error = &ended.json()["error"];
        assert_eq!(ended.code, Some(1), "{question} {input}");
        assert_eq!(
            (error["code"].as_str(), error["pointer"].as_str()),
            (Some(code), Some(pointer)),
            "{input}: {error}"
        );
        assert!(
            error["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{input}"
        );
    }
}

#[test]
fn invalid_json_is_refused() {
    let deep = "[".repeat(100_000);
    for input in ["", "{", "nonsense", deep.as_str()] {
        for question in ["select", "layout", "blocks", "compact", "marks", "count"] {
            let ended = pirn_with(input.as_bytes(), &["context", question]);
            assert_eq!(
                (ended.code, ended.json()["error"]["code"].as_str()),
                (Some(1), Some("INVALID_JSON")),
                "{question}"
            );
        }
    }
    let ended = pirn_with(&[0xff, 0xfe], &["context", "blocks"]);
    assert_eq!(
        (ended.code, ended.json()["error"]["code"].as_str()),
        (Some(1), Some("INVALID_JSON"))
    );
}

#[test]
fn show_prints_a_conversation_for_a_person() {
    let marks =
        json!({"originalIndices": [3], "batchBoundaries": [0, 3], "boundaryToBatch": [0, 1], "currentBatch": 1});
    let history = messages(&[
        "system:S",
        "user:old\nline",
        "assistant:fine",
        "system:S",
        "a[1,2]",
        "t:1",
        "t:2",
        "user:\u{1b}[2Jnew",
    ]);
    let run = json!({"conversation": {"messages": history, "markMap": marks}});
    let ended = pirn_with(run.to_string().as_bytes(), &["context", "show", "-"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        !ended.stdout.contains('\u{1b}'),
        "no colours where nobody looks, no control characters ever"
    );
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 8 + 2 + 1);
    assert_eq!(lines[0], "batch 0 (archived)");
    assert!(
        lines[2].contains("user") && lines[2].ends_with("old line"),
        "{}",
        lines[2]
    );
    assert_eq!(lines[4], "batch 1 (visible)");
    assert!(
        lines[6].contains("┌ assistant") && lines[6].contains("look() = 1"),
        "{}",
        lines[6]
    );
    assert!(
        lines[7].contains("│ tool") && lines[8].contains("└ tool"),
        "{}",
        ended.stdout
    );
    assert!(lines[10].starts_with("5 of 8 messages visible"), "{}", lines[10]);

    assert_eq!(pirn_with(b"", &["context", "show", "no/such/file"]).code, Some(2));
    let ended = pirn_with(br#"{"messages": [{"role": "x"}]}"#, &["context", "show", "-"]);
    assert_eq!(
        (ended.code, ended.json()["error"]["pointer"].as_str()),
        (Some(1), Some("/messages/0/role"))
    );
}

#[test]
fn a_summary_is_judged_by_the_facts_that_it_retains() {
    let originals = json!([
        {"role": "user", "content": "Order AX-7741 of Petra is 48.30 EUR, and not refundable."},
        {"role": "assistant", "content": null, "toolCalls": [{"id": "1", "name": "look", "arguments": {"day": "2026-01-02"}}]},
        {"role": "tool", "toolCallId": "1", "content": "so 1,200 were sold, Petra said"},
    ]);
    let given = json!({"originals": originals, "summary": "Petra has order ax-7741, 1200 sold."}).to_string();
    let judged = pirn_with(given.as_bytes(), &["context", "judge", "-", "--output", "json"]);
    assert_eq!(judged.code, Some(0), "{}", judged.stdout);
    let judged = judged.json();
    assert_eq!((&judged["total"], &judged["kept"]), (&json!(7), &json!(3)));
    assert_eq!(judged["kinds"]["number"], json!({"total": 2, "kept": 1}));
    let lost = json!([
        {"kind": "number", "text": "48.3", "messages": [0]},
        {"kind": "date", "text": "2026-01-02", "messages": [1]},
        {"kind": "name", "text": "eur", "messages": [0]},
        {"kind": "negation", "text": "refundable", "messages": [0]},
    ]);
    assert_eq!(judged["lost"], lost);

    let page = pirn_with(given.as_bytes(), &["context", "judge", "-"]).stdout;
    let end = page.lines().last().expect("lines");
    assert!(
        page.starts_with("kind ") && end.starts_with("negation  refundable"),
        "{page}"
    );
}

#[test]
fn the_summary_of_a_compressed_conversation_is_judged_against_the_hidden_messages() {
    let turns = [
        "u:so order AX-1 is for Petra",
        "a:fine",
        "u:and AX-2 for Paul",
        "a:fine too",
        "u:thanks",
        "a:bye",
    ];
    let summary = json!({"role": "user", "content": "AX-1 is for Petra", "metadata": {"summaryOf": {"ids": [], "count": 4, "batch": 0}}});
    let mut all = messages(&turns).as_array().expect("a list").clone();
    all.push(summary);
    all.extend_from_within(4..6);
    let marks =
        json!({"originalIndices": [6], "batchBoundaries": [0, 6], "boundaryToBatch": [0, 1], "currentBatch": 1});
    let report = json!({"messages": all, "markMap": marks}).to_string();
    let judged = pirn_with(report.as_bytes(), &["context", "judge", "-", "--output", "json"]).json();
    assert_eq!(
        (&judged["total"], &judged["share"]),
        (&json!(4), &json!(0.5)),
        "{judged}"
    );
    assert_eq!(
        judged["lost"][0],
        json!({"kind": "id", "text": "ax-2", "messages": [2]})
    );
    assert_eq!(
        judged["statements"],
        json!({"facts": {"total": 2, "kept": 0}}),
        "not verbatim"
    );

    let none = pirn_with(messages(&turns).to_string().as_bytes(), &["context", "judge", "-"]);
    assert_eq!(
        (none.code, &none.json()["error"]["code"]),
        (Some(1), &json!("NO_SUMMARY"))
    );

    let config = json!({"strategy": "summarize", "parameters": {"keepFacts": 2}});
    let floored = json!({"messages": messages(&turns), "compressionConfig": config});
    let refused = ask("compact", &floored);
    assert_eq!(
        refused.json()["error"]["pointer"],
        "/compressionConfig/parameters/keepFacts"
    );
}
