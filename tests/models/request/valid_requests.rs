//! A request is valid for its provider, whatever the history and the part of it that is used: broken pairs, blank texts, or a
//! selection or compression that starts with the assistant's message or in the middle of a tool's results.

use std::sync::Arc;

use pirn::formats::{Format, write};
use pirn::{EventType, Message, Part, Role, ThreadStatus, ToolCall};
use pirn_conversation::conversation::compression::{Compression, CompressionContext, compress, finish_summary};
use pirn_conversation::conversation::{
    AgentKind, Conversation, CountedMessage, Estimator, MessageRules, PinStrategy, RequestParts, build_request, select,
};
use pirn_definition::definition::{ConversationHistoryOptions, HistoryRange, Pinned, PinnedText, RoleCount, RoleRange};
use pirn_tests::wire::{Answer, Server, check_anthropic, check_gemini, check_pairs};
use pirn_tests::world::{line, node, run_in};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::models::{engine, profile};

/// A message of any kind. Calls use few ids, some of them unusual, so that results often match a call.
fn messages() -> impl Strategy<Value = Message> {
    let texts = prop::sample::select(vec!["hi", "", " ", "\n", "more to say"]);
    let ids = prop::sample::select(vec!["a", "b", "call-1", "functions.x:0", "call#t#0"]);
    let calls = prop::collection::vec(ids.clone(), 0..4);
    prop_oneof![
        1 => texts.clone().prop_map(|text| Message::new(Role::System, text)),
        4 => texts.clone().prop_map(|text| Message::new(Role::User, text)),
        1 => texts.clone().prop_map(|text| Message::of_parts(Role::User, vec![Part::text(text), Part::image("data:image/png;base64,AA==")])),
        4 => (texts.clone(), calls).prop_map(|(text, calls)| Message {
            tool_calls: calls.into_iter().map(|id| ToolCall { id: id.to_owned(), name: "t".to_owned(), arguments: json!("") }).collect(),
            ..Message::new(Role::Assistant, text)
        }),
        5 => (ids, texts).prop_map(|(id, text)| Message::tool_result(id, text)),
    ]
}

/// The part of a history that remains.
#[derive(Clone, Debug)]
enum Left {
    All,
    Selected(ConversationHistoryOptions),
    Compressed(Value),
    Batch(usize),
}

fn roles() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::System, Role::User, Role::Assistant, Role::Tool])
}

fn left() -> impl Strategy<Value = Left> {
    let n = || 1_u64..9;
    let options = prop_oneof![
        n().prop_map(|n| ConversationHistoryOptions {
            last_n: Some(n),
            ..Default::default()
        }),
        (roles(), n()).prop_map(|(role, count)| ConversationHistoryOptions {
            last_n_by_role: Some(RoleCount { role, count }),
            ..Default::default()
        }),
        roles().prop_map(|role| ConversationHistoryOptions {
            by_role: Some(role),
            ..Default::default()
        }),
        (n(), n()).prop_map(|(start, more)| ConversationHistoryOptions {
            range: Some(HistoryRange {
                start,
                end: start + more
            }),
            ..Default::default()
        }),
        (roles(), n()).prop_map(|(role, end)| ConversationHistoryOptions {
            range_by_role: Some(RoleRange { role, start: 0, end }),
            ..Default::default()
        }),
    ];
    let strategies = (
        prop::sample::select(vec!["keep_recent", "keep_system_recent", "sliding_window", "summarize"]),
        n(),
    );
    prop_oneof![
        Just(Left::All),
        options.prop_map(Left::Selected),
        strategies.prop_map(|(strategy, n)| {
            Left::Compressed(json!({"strategy": strategy, "parameters": {"count": n, "keepRecent": n}}))
        }),
        (0_usize..9).prop_map(Left::Batch),
    ]
}

fn of(messages: impl IntoIterator<Item = Arc<Message>>) -> Conversation {
    Conversation::from_messages(
        messages
            .into_iter()
            .map(|message| CountedMessage::new(message, &Estimator)),
    )
}

fn cut(history: &[Message], left: &Left) -> Conversation {
    let mut conversation = of(history.iter().cloned().map(Arc::new));
    match left {
        Left::All => conversation,
        Left::Selected(options) => of(select(&conversation, options).expect("valid")),
        Left::Compressed(config) => {
            let context = CompressionContext {
                messages: conversation.visible().messages(),
                compression_config: Some(serde_json::from_value(config.clone()).expect("a config")),
                ..CompressionContext::default()
            };
            let result = match compress(&context, &Estimator).expect("valid") {
                Compression::Done(result) => *result,
                Compression::Summarize(plan) => finish_summary(&plan, "what was", &Estimator),
            };
            of(result.messages)
        }
        Left::Batch(at) => {
            conversation
                .start_new_batch((*at).min(history.len()))
                .expect("in range");
            conversation
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_request_is_valid_for_its_provider(
        history in prop::collection::vec(messages(), 0..14),
        left in left(),
        todo in any::<bool>(),
        from_end in 0_usize..6,
        sub in any::<bool>(),
        system in any::<bool>(),
    ) {
        let conversation = cut(&history, &left);
        let before = conversation.clone();
        let pinned = Pinned { todo: todo.then(|| PinnedText::Text("PIN".to_owned())), ..Pinned::default() };
        for (format, rules) in [
            (Format::Anthropic, MessageRules::STRICT),
            (Format::Gemini, MessageRules::STRICT),
            (Format::OpenAi, MessageRules::default()),
        ] {
            let parts = RequestParts {
                agent: if sub { AgentKind::Sub } else { AgentKind::Main },
                pinned: Some(&pinned),
                strategy: PinStrategy::FromEnd(from_end),
                system: system.then_some("be kind"),
                rules,
                ..RequestParts::default()
            };
            let request = build_request(&conversation, &parts, &Estimator);
            prop_assert_eq!(&conversation, &before, "the history is as it was");
            let at = request.inserted_at;
            let found = request.messages.iter().position(|message| message.content == "PIN");
            prop_assert_eq!(at, found);
            let cost: u64 = request.messages.iter().map(|one| CountedMessage::new(Arc::clone(one), &Estimator).tokens).sum();
            prop_assert_eq!(request.tokens, cost);
            let body = write(&request.messages, format).expect("it can be said");
            let checked = match format {
                Format::Anthropic => check_anthropic(&body),
                Format::Gemini => check_gemini(&body),
                Format::OpenAi | Format::Pirn => check_openai(&body),
            };
            prop_assert_eq!(checked, Ok(()), "{:?}: {:#}", format, body);
            // A repair is complete: building a request from the result repairs nothing.
            let again = build_request(&of(request.messages.iter().cloned()), &RequestParts { pinned: None, system: None, agent: AgentKind::Sub, ..parts }, &Estimator);
            prop_assert!(again.repairs.is_empty(), "{:?}", again.repairs);
        }
    }
}

/// Checks the pair rule and that no assistant message has an empty text, with or without tool calls.
fn check_openai(body: &Value) -> Result<(), String> {
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["role"] == "assistant" && message["content"].as_str().is_some_and(|text| text.trim().is_empty()) {
            return Err(format!("an empty text: {message}"));
        }
    }
    let pinned_before_system = |error: String| {
        if error.contains("a system message") {
            Ok(())
        } else {
            Err(error)
        }
    };
    check_pairs(body).or_else(pinned_before_system)
}

#[test]
fn a_history_that_starts_with_the_assistants_message_is_repaired_and_reported() {
    let calls = |id: &str| Message {
        tool_calls: vec![ToolCall {
            id: id.to_owned(),
            name: "weather".to_owned(),
            arguments: json!({}),
        }],
        ..Message::new(Role::Assistant, "")
    };
    let history = vec![
        calls("c1"),
        Message::tool_result("c1", "fine"),
        Message::new(Role::User, " "),
        Message::new(Role::Assistant, "It is fine."),
    ];
    let anthropic = json!({"content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let gemini = json!({"candidates": [{"content": {"parts": [{"text": "Yes."}]}, "finishReason": "STOP"}]});
    let openai = json!({"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]});
    for (provider, answer, is_strict) in [
        ("anthropic", &anthropic, true),
        ("gemini", &gemini, true),
        ("openai", &openai, false),
    ] {
        let whole = |body: &Value| Answer::Whole {
            status: 200,
            headers: Vec::new(),
            body: body.to_string(),
        };
        let server = Server::answering([whole(answer)]);
        let more = json!({"provider": provider, "stream": false, "retry": {"maxAttempts": 1}});
        let workflow = line("asks", &[node("ask", "LLM", json!({}))]);
        let ran = run_in(
            engine([profile(&server, &more)]),
            &workflow,
            Value::Null,
            history.clone(),
        );
        assert_eq!(
            ran.report.status,
            ThreadStatus::Completed,
            "{provider}: {:?}",
            ran.report.error
        );
        // `requests` also checks the provider's rules.
        assert_eq!(server.requests().len(), 1);
        let told = ran.of(EventType::RequestRepaired);
        if is_strict {
            let repairs = &told[0].raised.fields["repairs"];
            let expected = json!({"closedCalls": [], "droppedResults": [], "droppedBlank": 1, "userFirst": true, "userLast": true});
            assert_eq!(repairs, &expected, "{provider}");
        } else {
            assert!(told.is_empty(), "{provider}: nothing to repair");
        }
        let kept: Vec<&str> = ran.visible();
        assert_eq!(
            kept,
            ["", "fine", " ", "It is fine.", "Yes."],
            "{provider}: the history is as it was"
        );
    }
}
