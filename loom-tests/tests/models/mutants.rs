//! Seeded mistakes. Each runs in a separate process with one model, which must fail: a model that cannot fail proves
//! nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use pirn_loom_tests::MUTANT;

/// Mutants, each with the model that must catch it.
const CAUGHT_BY: [(&str, &str); 19] = [
    (
        "completion: looks, then registers",
        "completion::a_task_is_woken_with_the_result",
    ),
    (
        "completion: sets without a word",
        "completion::a_blocked_thread_is_woken_with_the_result",
    ),
    (
        "completion: lets plain threads sleep",
        "completion::a_blocked_thread_is_woken_with_the_result",
    ),
    (
        "completion: wakes one task only",
        "completion::two_tasks_are_woken_with_the_result",
    ),
    (
        "completion: a dropped setter does not wake",
        "completion::a_dropped_setter_completes_as_lost",
    ),
    (
        "drain gate: looks, then enters",
        "drain_gate::at_most_the_limit_of_permits_is_held",
    ),
    (
        "drain gate: looks, then registers",
        "drain_gate::a_task_is_woken_when_the_gate_is_closed_and_empty_in_either_order",
    ),
    (
        "drain gate: closing an empty one does not wake",
        "drain_gate::a_task_is_woken_when_the_gate_is_closed_and_empty_in_either_order",
    ),
    (
        "drain gate: the last one out does not wake",
        "drain_gate::a_blocked_thread_is_woken_when_the_gate_is_drained",
    ),
    (
        "drain gate: a closed one lets in",
        "drain_gate::no_permit_is_held_after_the_gate_is_drained",
    ),
    (
        "batches: open before it is sent",
        "batches::every_item_is_received_once_in_the_order_of_its_sender",
    ),
    (
        "batches: a batch in flight is not sealed",
        "batches::no_item_overtakes_an_earlier_item_of_its_sender",
    ),
    (
        "batches: opens what another one may follow",
        "batches::every_item_is_received_once_in_the_order_of_its_sender",
    ),
    ("quota: counts before it looks", "quota::a_refused_claim_is_not_counted"),
    (
        "quota: looks, then claims",
        "quota::every_number_up_to_the_limit_is_claimed_once",
    ),
    (
        "admission: enters before it is registered",
        "admission::closing_lists_every_admitted_run",
    ),
    (
        "admission: a refused run stays registered",
        "admission::a_refused_run_is_forgotten",
    ),
    (
        "admission: lists, then closes",
        "admission::closing_lists_every_admitted_run",
    ),
    (
        "stop flag: raised without what came before",
        "stop_flag::a_thread_that_sees_the_stop_sees_earlier_writes",
    ),
];

#[test]
fn every_mutant_is_caught_by_its_model() {
    // A process with a mutant runs only models.
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
