//! The check of the pair rule itself: each tool call has one result, directly after it.

use pirn_tests::wire::check_pairs;
use serde_json::{Value, json};

fn openai(messages: &Value) -> Result<(), String> {
    check_pairs(&json!({ "messages": messages }))
}

#[test]
fn complete_conversations_pass_the_pair_check() {
    let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id});
    assert_eq!(
        openai(&json!([{"role": "system"}, {"role": "user"}, call, tool("b"), tool("a"), {"role": "user"}])),
        Ok(())
    );
    let anthropic = json!({"system": "s", "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]});
    assert_eq!(check_pairs(&anthropic), Ok(()));
    let gemini = json!({"contents": [{"role": "user", "parts": [{"text": "t"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "f"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f"}}, {"functionResponse": {"name": "f"}}]}]});
    assert_eq!(check_pairs(&gemini), Ok(()));
}

#[test]
fn broken_conversations_fail_the_pair_check() {
    let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]});
    let tool = |id: &str| json!({"role": "tool", "tool_call_id": id});
    for broken in [
        json!([tool("a")]),
        json!([call, tool("a")]),
        json!([call, tool("a"), {"role": "user"}, tool("b")]),
        json!([call, tool("a"), tool("a")]),
        json!([call, call, tool("a"), tool("b"), tool("a"), tool("b")]),
        json!([{"role": "user"}, {"role": "system"}]),
    ] {
        assert!(openai(&broken).is_err(), "{broken}");
    }
}
