use crate::conversation::tests::notation::{conversation, counted, shown};
use crate::conversation::{
    Conversation, ConversationEffect, ConversationError, ConversationInput, ConversationMachine, ResolvedContext,
    TokenSignal, TokenUsage,
};

fn step(machine: &mut ConversationMachine, input: ConversationInput) -> Vec<ConversationEffect> {
    let mut out = Vec::new();
    machine.step(0, input, &mut out);
    out
}

fn call(machine: &mut ConversationMachine, tokens: u64) -> Option<&'static str> {
    signal(machine, tokens, false)
}

/// Repeats a call whose firing has ended.
fn repeat(machine: &mut ConversationMachine, tokens: u64) -> Option<&'static str> {
    signal(machine, tokens, true)
}

fn signal(machine: &mut ConversationMachine, tokens: u64, is_repeated: bool) -> Option<&'static str> {
    match step(machine, ConversationInput::BeforeModelCall { tokens, is_repeated }).as_slice() {
        [] => None,
        [ConversationEffect::Signal(TokenSignal::Exceeded { .. })] => Some("exceeded"),
        [ConversationEffect::Signal(TokenSignal::Warning { .. })] => Some("warning"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_append_is_reported_message_by_message() {
    let mut machine = ConversationMachine::new(conversation(&["s"]), None);
    let added = counted(&["u", "a"]);
    let effects = step(&mut machine, ConversationInput::Append(added.clone()));
    let expected: Vec<ConversationEffect> = (1..)
        .zip(added)
        .map(|(index, message)| ConversationEffect::MessageAdded { index, message })
        .collect();
    assert_eq!(effects, expected);
}

#[test]
fn a_refusal_changes_nothing_and_has_a_reason() {
    let mut machine = ConversationMachine::new(conversation(&["s", "u"]), None);
    let before = machine.clone();
    let effects = step(&mut machine, ConversationInput::StartNewBatch(9));
    assert!(matches!(
        effects[..],
        [ConversationEffect::Rejected(ConversationError::InvalidBoundary { .. })]
    ));
    assert_eq!(machine, before);
}

#[test]
fn every_change_bumps_the_version() {
    let mut machine = ConversationMachine::new(Conversation::new(), None);
    let basis = machine.conversation().basis();
    let inputs = [
        ConversationInput::Append(counted(&["s"])),
        ConversationInput::Apply(ResolvedContext::Insert {
            messages: counted(&["u"]),
            position: -1,
        }),
        ConversationInput::Replace {
            basis,
            messages: counted(&["user:S"]),
        },
        ConversationInput::StartNewBatch(3),
        ConversationInput::RollbackToBatch(0),
        ConversationInput::Apply(ResolvedContext::Clear { keep_system: true }),
        ConversationInput::Restore(conversation(&["u"])),
    ];
    for (version, input) in (1..).zip(inputs) {
        let effects = step(&mut machine, input);
        assert_eq!(machine.conversation().version(), version, "{effects:?}");
    }
    assert_eq!(shown(machine.conversation()), ["u"]);
}

#[test]
fn h07_a_limit_of_zero_is_exceeded_only_by_a_positive_number_of_tokens() {
    let mut machine = ConversationMachine::new(Conversation::new(), Some(0));
    assert_eq!(call(&mut machine, 0), None, "H07");
    assert_eq!(call(&mut machine, 1), Some("exceeded"), "H07");
}

#[test]
fn h08_the_limit_applies_to_the_context_and_not_to_the_spent_tokens() {
    let mut machine = ConversationMachine::new(Conversation::new(), Some(1_000));
    for _ in 0..3 {
        assert_eq!(call(&mut machine, 400), None, "H08");
        step(&mut machine, ConversationInput::Spent(TokenUsage::new(300, 100, 400)));
    }
    assert_eq!(machine.spent(), TokenUsage::new(900, 300, 1_200));
    assert_eq!(call(&mut machine, 0), None, "H08");
}

#[test]
fn a_crossed_limit_fires_once_until_the_context_is_below_it() {
    let mut machine = ConversationMachine::new(Conversation::new(), Some(100));
    let fired: Vec<_> = [79, 80, 90, 100, 101, 150, 100, 101, 50, 85]
        .into_iter()
        .map(|tokens| call(&mut machine, tokens))
        .collect();
    let expected = [
        None,
        Some("warning"),
        None,
        None,
        Some("exceeded"),
        None,
        None,
        Some("exceeded"),
        None,
        Some("warning"),
    ];
    assert_eq!(fired, expected);
}

#[test]
fn the_end_of_a_compression_rearms_the_signal() {
    let mut machine = ConversationMachine::new(Conversation::new(), Some(100));
    assert_eq!(call(&mut machine, 101), Some("exceeded"));
    assert_eq!(call(&mut machine, 101), None);
    step(&mut machine, ConversationInput::CompressionEnded);
    assert_eq!(call(&mut machine, 101), Some("exceeded"));
}

#[test]
fn a_compression_that_leaves_the_context_above_the_limit_is_attempted_again_once_that_may_help() {
    let mut machine = ConversationMachine::new(conversation(&["user:a"]), Some(100));
    assert_eq!(call(&mut machine, 150), Some("exceeded"));
    step(&mut machine, ConversationInput::CompressionEnded);
    assert_eq!(repeat(&mut machine, 140), None, "it would repeat for ever");
    assert_eq!(
        call(&mut machine, 150),
        None,
        "the same messages can be removed as before"
    );
    assert_eq!(call(&mut machine, 151), Some("exceeded"), "it has grown by a tenth");
    step(&mut machine, ConversationInput::CompressionEnded);
    assert_eq!(repeat(&mut machine, 151), None);
    step(
        &mut machine,
        ConversationInput::Append(counted(&["assistant:b", "user:c"])),
    );
    assert_eq!(call(&mut machine, 151), Some("exceeded"), "a new turn has started");
    assert_eq!(repeat(&mut machine, 151), None);
    step(
        &mut machine,
        ConversationInput::Append(counted(&["assistant:d", "user:e"])),
    );
    assert_eq!(call(&mut machine, 151), None, "no compression has ended");
}

#[test]
fn a_truncate_below_the_limit_rearms_the_signal() {
    let long: Vec<String> = (0..30).map(|number| format!("user:{number}")).collect();
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    let mut machine = ConversationMachine::new(conversation(&long), Some(100));
    let tokens = machine.context_tokens();
    assert_eq!(call(&mut machine, tokens), Some("exceeded"));
    step(
        &mut machine,
        ConversationInput::Apply(ResolvedContext::Clear { keep_system: false }),
    );
    step(&mut machine, ConversationInput::Append(counted(&long)));
    let tokens = machine.context_tokens();
    assert_eq!(call(&mut machine, tokens), Some("exceeded"), "it was below in between");
}

#[test]
fn without_a_limit_nothing_fires() {
    let mut machine = ConversationMachine::new(Conversation::new(), None);
    assert_eq!(call(&mut machine, u64::MAX), None);
}
