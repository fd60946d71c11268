use pirn_definition::definition::{AgentConfig, Pinned};
use pirn_definition::message::{Message, Role};
use serde_json::{Value, json};

use crate::conversation::tests::notation::{conversation, message, messages, written};
use crate::conversation::{
    AgentKind, PinStrategy, RequestParts, build_request, first_prompt, pin_position, pinned_messages, tool_blocks,
};

fn all_four() -> Pinned {
    pinned(json!({"role": "R", "todo": "todo", "usefulInfo": "info", "folderNotes": "notes"}))
}

fn pinned(value: Value) -> Pinned {
    serde_json::from_value(value).expect("pinned")
}

#[test]
fn the_position_of_the_pinned_block_matches_the_cases() {
    let cases: [(&str, &[&str], usize); 12] = [
        ("I01", &[], 0),
        ("I02", &["u", "a", "u", "a"], 4),
        ("I03", &["u", "a", "u", "a", "u"], 0),
        ("I05", &["u", "a[1]", "t:1", "a", "u", "a"], 1),
        ("I06", &["u", "a[1,2]", "t:1", "t:2", "a", "u"], 1),
        ("I08", &["u", "u", "a[1]", "t:1", "t:x", "a", "u", "a"], 2),
        ("I25", &["u", "a", "u", "a[1]"], 3),
        ("I25 partly answered", &["u", "a[1,2]", "t:2"], 1),
        ("answered tail", &["u", "a[1]", "t:1"], 3),
        ("orphans are no block", &["u", "t:1", "t:2", "t:3", "t:4", "t:5"], 1),
        (
            "a long block",
            &["u", "a[1]", "t:1", "t:1", "t:1", "t:1", "t:1", "t:1", "t:1"],
            1,
        ),
        ("open at the target", &["u", "a[1]", "a", "u", "a", "u", "a"], 2),
    ];
    for (id, history, expected) in cases {
        let mut all = vec![message("s")];
        all.extend(messages(history));
        let at = pin_position(PinStrategy::default(), all.len(), |index| all.get(index));
        assert_eq!(at, expected + 1, "{id}");
    }
}

#[test]
fn i09_i10_n_is_configurable() {
    let history: Vec<Message> = (0..11).map(|_| message("u")).collect();
    let at = |strategy| pin_position(strategy, history.len(), |index| history.get(index)) - 1;
    assert_eq!(at(PinStrategy::FromEnd(1)), 9, "I09");
    assert_eq!(at(PinStrategy::FromEnd(5)), 5, "I10");
    assert_eq!(at(PinStrategy::FromEnd(0)), 10);
    assert_eq!(at(PinStrategy::FromEnd(usize::MAX)), 10);
    assert_eq!(at(PinStrategy::AfterFirst), 0);
    assert_eq!(at(PinStrategy::AtEnd), 10);
}

#[test]
fn i12_the_pending_message_is_not_part_of_the_history() {
    let request = build(&["system", "user:hi"], AgentKind::Main, &all_four());
    assert_eq!(
        request,
        ["system", "## Agent Role Definition\n\nR", "todo", "info", "notes", "hi"],
        "I12"
    );
}

#[test]
fn i13_without_pinned_content_the_request_is_unchanged() {
    assert_eq!(
        build(&["s", "u", "a", "u2"], AgentKind::Main, &Pinned::default()),
        ["s", "u", "a", "u2"],
        "I13"
    );
}

#[test]
fn i15_any_subset_of_sections_is_one_block_in_fixed_order() {
    for chosen in 0_u8..16 {
        let on = |bit: u8, text: &str| (chosen & (1 << bit) != 0).then(|| json!(text));
        let value =
            json!({"role": on(0, "R"), "todo": on(1, "1"), "usefulInfo": on(2, "2"), "folderNotes": on(3, "3")});
        let expected: Vec<&str> = ["## Agent Role Definition\n\nR", "1", "2", "3"]
            .into_iter()
            .enumerate()
            .filter(|(bit, _)| chosen & (1 << bit) != 0)
            .map(|(_, text)| text)
            .collect();
        let request = build(
            &["s", "x0", "x1", "x2", "x3", "x4", "x5", "u"],
            AgentKind::Main,
            &pinned(value),
        );
        assert_eq!(request[2..2 + expected.len()], expected, "I15");
        assert_eq!(request.len(), 8 + expected.len(), "I15");
    }
}

#[test]
fn i16_the_role_has_a_heading() {
    let made = pinned_messages(&pinned(json!({"role": "R"})));
    assert_eq!(made, [Message::new(Role::User, "## Agent Role Definition\n\nR")], "I16");
}

#[test]
fn i17_internal_messages_are_dropped_before_the_position_is_computed() {
    let history = ["s", "x0", "x1", "x2", "a~", "a~", "a~", "x3", "u"];
    let main = build(&history, AgentKind::Main, &pinned(json!({"todo": "T"})));
    assert_eq!(main, ["s", "x0", "x1", "x2", "x3", "T", "u"], "I17");
    let sub = build(&history, AgentKind::Sub, &pinned(json!({"todo": "T"})));
    assert_eq!(sub, ["s", "x0", "x1", "T", "x2", "a", "a", "a", "x3", "u"]);
}

#[test]
fn i26_building_a_request_changes_nothing() {
    let history = conversation(&["s", "u", "a", "u"]);
    let before = history.clone();
    let parts = RequestParts {
        pinned: Some(&all_four()),
        ..RequestParts::default()
    };
    let first = build_request(&history, &parts, &crate::conversation::Estimator);
    let second = build_request(&history, &parts, &crate::conversation::Estimator);
    assert_eq!(first, second, "I26");
    assert_eq!(history, before, "I26");
}

#[test]
fn the_first_prompt_of_a_sub_agent_stays_first() {
    let todo = pinned(json!({"todo": "T"}));
    assert_eq!(build(&["user:prompt"], AgentKind::Sub, &todo), ["prompt", "T"]);
    assert_eq!(build(&["user:prompt"], AgentKind::Main, &todo), ["T", "prompt"]);
}

#[test]
fn structured_sections_render_as_markdown() {
    let value = json!({
        "todo": [{"content": "write", "status": "completed"}, {"content": "test"}],
        "usefulInfo": [{"file": "a.rs", "lines": "1-2", "text": "the door"}, {"text": "a fact"}],
        "folderNotes": {"src": ["small files"], "empty": []},
    });
    let texts = written(pinned_messages(&pinned(value)));
    let expected = [
        "## TODO List\n\n- [x] write\n- [ ] test",
        "## Useful Information\n\n- `a.rs:1-2`: the door\n- a fact",
        "## Folder Notes\n\n### src\n\n- small files",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn tool_blocks_match_the_cases() {
    type Case = (&'static str, &'static [&'static str], &'static [(usize, usize)]);
    let cases: [Case; 6] = [
        ("I18", &[], &[]),
        ("I20", &["a[1]", "t:1", "u", "a[2]", "t:2"], &[(0, 1), (3, 4)]),
        ("I21", &["u", "a[1,2]", "t:1", "u"], &[(1, 2)]),
        ("I22", &["a[1,2,3]", "t:3", "t:1", "t:2"], &[(0, 3)]),
        ("I24", &["u", "a[1]", "t:9", "t:1", "a"], &[(1, 3)]),
        ("orphans", &["t:1", "a", "t:2", "a[]"], &[]),
    ];
    for (id, history, expected) in cases {
        let blocks: Vec<_> = tool_blocks(&messages(history))
            .into_iter()
            .map(|block| (block.start, block.end - 1))
            .collect();
        assert_eq!(blocks, expected, "{id}");
    }
}

#[test]
fn the_first_prompt_is_prompt_then_role_then_instructions() {
    let agent = |role: Option<&str>| AgentConfig {
        id: "scout".to_owned(),
        role: role.map(str::to_owned),
        instructions: vec!["be brief".to_owned(), String::new(), "AGENTS.md".to_owned()],
    };
    let prompt = first_prompt("look", &agent(Some("You scout."))).expect("has a role");
    assert_eq!(prompt, "look\n\nYou scout.\n\nbe brief\n\nAGENTS.md");
    let missing: pirn_definition::error::RunError = first_prompt("look", &agent(None)).expect_err("no role").into();
    assert_eq!(missing.code, pirn_definition::error::RunErrorCode::SubAgentRoleMissing);
}

fn build(history: &[&str], agent: AgentKind, pinned: &Pinned) -> Vec<String> {
    let parts = RequestParts {
        agent,
        pinned: Some(pinned),
        ..RequestParts::default()
    };
    let request = build_request(&conversation(history), &parts, &crate::conversation::Estimator);
    written(request.messages)
}
