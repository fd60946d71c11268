use pirn_definition::message::Role;

use crate::conversation::tests::notation::{conversation, counted, shown, written};
use crate::conversation::{Conversation, MarkMap, ResolvedContext, apply};

#[test]
fn d01_a_new_conversation_has_one_empty_batch() {
    let marks = serde_json::to_value(Conversation::new().mark_map()).expect("plain data");
    let expected = serde_json::json!({
        "originalIndices": [], "batchBoundaries": [0], "boundaryToBatch": [0], "currentBatch": 0,
    });
    assert_eq!(marks, expected);
}

#[test]
fn d02_d03_a_new_batch_hides_messages_and_a_rollback_shows_them_again() {
    let texts: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut history = conversation(&texts);
    history.start_new_batch(5).expect("D02");
    let marks = history.mark_map();
    assert_eq!(
        (&*marks.batch_boundaries, &*marks.boundary_to_batch, marks.current_batch),
        (&[0, 5][..], &[0, 1][..], 1)
    );
    let indices: Vec<usize> = history.visible().indexed().map(|(index, _)| index).collect();
    assert_eq!(indices, [5, 6, 7, 8, 9], "D02");

    history.rollback_to_batch(0).expect("D03");
    let marks = history.mark_map();
    assert_eq!(
        (&*marks.batch_boundaries, &*marks.boundary_to_batch, marks.current_batch),
        (&[0][..], &[0][..], 0)
    );
    assert_eq!(history.visible().len(), 10, "D03");
}

#[test]
fn d04_d06_an_unknown_boundary_or_batch_is_refused_and_nothing_changes() {
    let mut history = conversation(&["m0", "m1", "m2"]);
    let before = history.clone();
    let error = history.start_new_batch(4).expect_err("D04");
    assert_eq!(
        error.to_string(),
        "Invalid boundary index (must be 0..3)".replace("index", "index 4"),
        "D04"
    );
    history.start_new_batch(3).expect("the length is allowed");
    let error = history.rollback_to_batch(7).expect_err("D06");
    assert_eq!(error.to_string(), "Target batch 7 not found", "D06");
    history.rollback_to_batch(0).expect("known");
    assert_eq!(shown(&history), shown(&before));
    let mut after = conversation(&["m0", "m1", "m2"]);
    after.start_new_batch(2).expect("in range");
    after.start_new_batch(1).expect_err("boundaries do not decrease");
}

#[test]
fn d12_a_rollback_deletes_nothing() {
    let mut history = conversation(&["system:S", "user:Hello!", "assistant:Hi"]);
    history.rollback_to_batch(0).expect("D12");
    assert_eq!(history.complete().len(), 3, "D12");
    assert_eq!(history.visible().len(), 3, "D12");
}

#[test]
fn d13_a_clone_does_not_see_later_messages() {
    let mut history = conversation(&["system:S", "user:Hello!", "assistant:Hi"]);
    let clone = history.clone();
    history.extend(counted(&["user:U2"]));
    let users = |history: &Conversation| {
        history
            .visible()
            .iter()
            .filter(|one| one.message.role == Role::User)
            .count()
    };
    assert_eq!((users(&history), users(&clone)), (2, 1), "D13");
}

#[test]
fn d14_a_snapshot_restores_the_conversation() {
    let mut history = conversation(&["system:S", "user:Hello!", "assistant:Hi"]);
    let snapshot = history.clone();
    apply(&mut history, ResolvedContext::Clear { keep_system: false }).expect("clear");
    assert_eq!(shown(&history), Vec::<String>::new());
    history.restore(&snapshot);
    assert_eq!(shown(&history), ["S", "Hello!", "Hi"], "D14");
    assert!(history.version() > snapshot.version());
}

#[test]
fn d19_a_rollback_shows_the_original_batch() {
    let mut history = conversation(&["s", "u1", "a1", "u2", "a2"]);
    history.start_new_batch(5).expect("D19");
    history.extend(counted(&["s", "user:SUMMARY"]));
    assert_eq!(shown(&history), ["s", "SUMMARY"], "D19");
    assert_eq!(history.complete().len(), 7, "D19");
    let tokens_before = conversation(&["s", "u1", "a1", "u2", "a2"]).visible_tokens();
    history.rollback_to_batch(0).expect("D19");
    assert_eq!(shown(&history), ["s", "u1", "a1", "u2", "a2"], "D19");
    assert_eq!(history.visible_tokens(), tokens_before);
    history.extend(counted(&["u3"]));
    assert_eq!(
        shown(&history),
        ["s", "u1", "a1", "u2", "a2", "u3"],
        "what comes after a rollback follows it"
    );
    assert_eq!(history.complete().len(), 8);
}

#[test]
fn mark_maps_written_by_other_tools_are_read() {
    let marks = serde_json::json!({
        "originalIndices": [0, 1, 2, 3], "batchBoundaries": [0, 2], "boundaryToBatch": [0, 1], "currentBatch": 1,
    });
    let marks: MarkMap = serde_json::from_value(marks).expect("the shape is the same");
    let mut history = Conversation::from_parts(counted(&["m0", "m1", "m2", "m3"]), marks).expect("sound");
    assert_eq!(shown(&history), ["m2", "m3"]);
    history.rollback_to_batch(0).expect("known");
    assert_eq!(written(history.visible().messages()), ["m0", "m1", "m2", "m3"]);
}
