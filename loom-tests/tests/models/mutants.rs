//! Seeded mistakes. Each is switched on in a process of its own that runs one model, and the model must fail: a model
//! that cannot fail shows nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use pirn_loom_tests::MUTANT;

/// The mutant, and the model that must catch it.
const CAUGHT_BY: [(&str, &str); 29] = [
    (
        "completion: looks, then registers",
        "completion::a_task_hears_of_the_result",
    ),
    (
        "completion: sets without a word",
        "completion::a_plain_thread_hears_of_the_result",
    ),
    (
        "completion: lets plain threads sleep",
        "completion::a_plain_thread_hears_of_the_result",
    ),
    (
        "completion: wakes one task only",
        "completion::two_tasks_hear_of_the_result",
    ),
    (
        "completion: a dropped setter says nothing",
        "completion::a_dropped_setter_is_lost",
    ),
    (
        "latch: reads and writes the count apart",
        "latch::who_waited_sees_what_was_done_before_each_count",
    ),
    (
        "latch: opens without a word",
        "latch::who_waited_sees_what_was_done_before_each_count",
    ),
    (
        "cancel: looks, then registers",
        "cancel::a_task_below_hears_of_a_cancel_above",
    ),
    (
        "cancel: a late child is not cancelled",
        "cancel::a_child_made_during_the_cancel_is_cancelled",
    ),
    (
        "cancel: the last reason wins",
        "cancel::of_two_cancels_one_is_first_and_its_reason_stays",
    ),
    (
        "cancel: a forgotten token forgets its children",
        "cancel::a_cancel_reaches_below_a_token_that_is_forgotten_meanwhile",
    ),
    (
        "cancel: the flag is relaxed",
        "cancel::who_sees_the_flag_sees_the_reason_and_what_came_before",
    ),
    (
        "cancel: a late callback is not called",
        "cancel::a_callback_is_called_once_however_late_it_comes",
    ),
    (
        "drain gate: looks, then enters",
        "drain_gate::never_more_inside_than_the_limit",
    ),
    (
        "drain gate: looks, then registers",
        "drain_gate::a_task_hears_that_the_gate_is_drained_whichever_comes_last",
    ),
    (
        "drain gate: closing an empty one says nothing",
        "drain_gate::a_task_hears_that_the_gate_is_drained_whichever_comes_last",
    ),
    (
        "drain gate: the last one out says nothing",
        "drain_gate::a_plain_thread_hears_that_the_gate_is_drained",
    ),
    (
        "drain gate: a closed one lets in",
        "drain_gate::nobody_is_inside_once_it_is_drained",
    ),
    (
        "ready queue: lets the reader sleep",
        "ready::a_reader_that_rests_is_woken_by_every_push",
    ),
    (
        "ready queue: looks, then rests",
        "ready::a_reader_that_rests_is_woken_by_every_push",
    ),
    (
        "wake flag: lowers without looking",
        "ready::what_was_done_before_a_wake_is_seen_by_the_turn_after_it",
    ),
    (
        "single flight: looks, then takes",
        "single_flight::one_holder_at_a_time_and_the_key_is_free_afterwards",
    ),
    (
        "single flight: the key stays taken",
        "single_flight::one_holder_at_a_time_and_the_key_is_free_afterwards",
    ),
    (
        "subscriptions: reads the sequence before it joins",
        "subscriptions::who_joins_during_events_gets_all_from_its_first_on_in_order",
    ),
    (
        "subscriptions: two changes at once",
        "subscriptions::two_who_join_at_once_are_both_in",
    ),
    (
        "subscriptions: leaving changes nothing",
        "subscriptions::who_has_left_gets_no_event_that_starts_later",
    ),
    (
        "batches: open before it is sent",
        "batches::every_item_comes_once_in_its_senders_order",
    ),
    (
        "batches: what is being sent is not sealed",
        "batches::no_item_overtakes_what_its_sender_sent_before",
    ),
    (
        "batches: opens what another one may follow",
        "batches::every_item_comes_once_in_its_senders_order",
    ),
];

#[test]
fn every_mutant_is_caught_by_its_model() {
    // In a process that a mutant was asked for, only models are of interest.
    if std::env::var_os(MUTANT).is_some() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    for (mutant, model) in CAUGHT_BY {
        let run = Command::new(&this)
            .args(["--exact", model])
            .env(MUTANT, mutant)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(said.contains("running 1 test"), "no model {model}: {said}");
        assert!(!run.status.success(), "{model} does not catch {mutant:?}");
    }
}

#[test]
fn every_mutant_in_the_sources_is_listed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sync/src");
    let mut seeded = BTreeSet::new();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let names = text
                .split("mutant!(\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next());
            seeded.extend(names.map(str::to_owned));
        }
    }
    let listed: BTreeSet<String> = CAUGHT_BY.iter().map(|(mutant, _)| (*mutant).to_owned()).collect();
    assert_eq!(listed, seeded);
}
