//! Runs and their journals.

use crate::commit::{Commit, SessionWrite};
use crate::conformance::{Open, Property, append, bodies, definition, done, fork, numbers, record, refused, start};
use crate::error::StoreError;
use crate::run::{Base, Run, RunFilter, RunStatus, WaitingFor};

pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "committed_data_is_present_after_the_store_is_reopened",
        check: reopened,
    },
    Property {
        name: "records_are_read_in_order_page_by_page",
        check: pages,
    },
    Property {
        name: "a_commit_is_atomic",
        check: whole,
    },
    Property {
        name: "a_second_writer_of_a_run_is_refused",
        check: fenced,
    },
    Property {
        name: "a_run_starts_once_and_only_with_a_stored_definition",
        check: begins_once,
    },
    Property {
        name: "a_fork_shares_only_the_steps_before_it",
        check: forks,
    },
    Property {
        name: "runs_are_listed_by_id_page_by_page_and_filtered",
        check: lists,
    },
    Property {
        name: "commands_take_effect_in_submission_order",
        check: order,
    },
    Property {
        name: "strings_of_any_size_and_script_round_trip",
        check: texts,
    },
];

fn reopened(open: &Open) {
    let store = open();
    assert_eq!(done(store.commit(start("run-1"))), 0);
    assert_eq!(
        done(store.commit(Commit::after("run-1", 0).record(record(1)).record(record(2)))),
        2
    );
    let waiting = RunStatus::Waiting(WaitingFor::Interaction);
    assert_eq!(done(store.commit(Commit::after("run-1", 2).status(waiting))), 2);
    drop(store);
    let store = open();
    let run = Run {
        id: "run-1".into(),
        workflow: "flow".into(),
        definition: definition().hash(),
        contents: Vec::new(),
        semantics: 1,
        session: None,
        base: None,
        status: waiting,
        started_at: 1_000,
        updated_at: 1_002,
        steps: 2,
    };
    assert_eq!(done(store.run("run-1")), Some(run));
    assert_eq!(done(store.journal("run-1", 0, 10)), [record(1), record(2)]);
    assert_eq!(
        done(store.contents(vec![definition().hash()])),
        [definition().text().clone()]
    );
    append(&*store, "run-1", 2, [3]);
    drop(store);
    assert_eq!(bodies(&*open(), "run-1"), numbers(1..=3));
}

fn pages(open: &Open) {
    let store = open();
    done(store.commit(start("run-1")));
    for number in 1..=100 {
        append(&*store, "run-1", number - 1, [number]);
    }
    for (after, limit) in [(0, 7), (1, 1), (50, 50), (93, 100), (99, 1), (100, 1), (500, 1), (3, 0)] {
        let read: Vec<_> = done(store.journal("run-1", after, limit))
            .into_iter()
            .map(|record| record.body)
            .collect();
        assert_eq!(read, numbers((after + 1..=100).take(limit)), "after {after}, {limit}");
    }
    assert_eq!(
        refused(store.journal("none", 0, 1)),
        StoreError::NoSuchRun { run: "none".into() }
    );
}

fn whole(open: &Open) {
    let store = open();
    done(store.commit(start("run-1")));
    let session = SessionWrite {
        id: "s".into(),
        follows: 3,
        body: "{}".into(),
        contents: Vec::new(),
        at: 1,
    };
    let text = crate::Content::new("of no owner");
    let commit = Commit::after("run-1", 0)
        .record(record(1))
        .content(text.clone())
        .timer(5, "t")
        .status(RunStatus::Failed);
    let error = refused(store.commit(commit.session(session)));
    assert!(
        matches!(
            error,
            StoreError::SessionMoved {
                expected: 3,
                found: 0,
                ..
            }
        ),
        "{error}"
    );
    let run = done(store.run("run-1")).map(|run| (run.steps, run.status));
    assert_eq!(run, Some((0, RunStatus::Unfinished)));
    assert_eq!(done(store.timers(u64::MAX, 9)), []);
    assert_eq!(
        refused(store.contents(vec![text.hash()])),
        StoreError::NoSuchContent { hash: text.hash() }
    );
    append(&*store, "run-1", 0, [1]);
}

fn fenced(open: &Open) {
    let store = open();
    done(store.commit(start("run-1")));
    append(&*store, "run-1", 0, [1, 2]);
    for expected in [0, 1, 3] {
        let error = refused(store.commit(Commit::after("run-1", expected).record(record(9))));
        let run = "run-1".into();
        assert_eq!(
            error,
            StoreError::Moved {
                run,
                expected,
                found: 2
            }
        );
    }
    let error = refused(store.commit(Commit::after("none", 0)));
    assert_eq!(error, StoreError::NoSuchRun { run: "none".into() });
    assert_eq!(bodies(&*store, "run-1"), numbers(1..=2));
}

fn begins_once(open: &Open) {
    let store = open();
    let mut without = start("run-1");
    without.contents.clear();
    let hash = definition().hash();
    assert_eq!(refused(store.commit(without)), StoreError::NoSuchContent { hash });
    assert_eq!(done(store.run("run-1")), None);
    done(store.commit(start("run-1").record(record(1))));
    assert_eq!(
        refused(store.commit(start("run-1"))),
        StoreError::RunExists { run: "run-1".into() }
    );
    assert_eq!(bodies(&*store, "run-1"), numbers([1]));
}

fn forks(open: &Open) {
    let store = open();
    done(store.commit(start("a")));
    append(&*store, "a", 0, 1..=5);
    done(store.commit(fork("b", "a", 3)));
    append(&*store, "b", 3, [14, 15]);
    append(&*store, "a", 5, [6]);
    done(store.commit(fork("c", "b", 4)));
    append(&*store, "c", 4, [25]);
    done(store.commit(fork("d", "c", 2)));
    done(store.commit(fork("e", "a", 0)));
    append(&*store, "e", 0, [31]);
    done(store.commit(fork("f", "b", 3)));
    drop(store);
    let store = open();
    assert_eq!(bodies(&*store, "a"), numbers(1..=6));
    assert_eq!(bodies(&*store, "b"), numbers([1, 2, 3, 14, 15]));
    assert_eq!(bodies(&*store, "c"), numbers([1, 2, 3, 14, 25]));
    assert_eq!(bodies(&*store, "d"), numbers([1, 2]));
    assert_eq!(bodies(&*store, "e"), numbers([31]));
    assert_eq!(bodies(&*store, "f"), numbers([1, 2, 3]));
    append(&*store, "d", 2, [43]);
    append(&*store, "f", 3, [54]);
    assert_eq!(bodies(&*store, "d"), numbers([1, 2, 43]));
    assert_eq!(bodies(&*store, "f"), numbers([1, 2, 3, 54]));
    for (after, limit) in [(2, 2), (3, 1), (4, 9), (1, 3)] {
        let read: Vec<_> = done(store.journal("c", after, limit))
            .into_iter()
            .map(|record| record.body)
            .collect();
        let all = numbers([1, 2, 3, 14, 25]).into_iter().skip(after as usize).take(limit);
        assert_eq!(read, all.collect::<Vec<_>>());
    }
    let base = done(store.run("c")).and_then(|run| run.base);
    assert_eq!(
        base,
        Some(Base {
            run: "b".into(),
            step: 4
        })
    );
    let error = refused(store.commit(fork("g", "a", 7)));
    assert!(
        matches!(
            error,
            StoreError::Moved {
                expected: 7,
                found: 6,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(
        refused(store.commit(fork("g", "none", 0))),
        StoreError::NoSuchRun { run: "none".into() }
    );
}

fn lists(open: &Open) {
    let store = open();
    for number in 0..30_usize {
        let mut commit = start(&format!("run-{number:02}"));
        if let crate::Precondition::Start(new) = &mut commit.follows {
            new.session = (number % 3 == 0).then(|| "s".to_owned());
            new.started_at = number as u64 / 2;
            if number.is_multiple_of(5) {
                new.workflow = "other".into();
            }
        }
        done(store.commit(commit.status(RunStatus::ALL[number % 8])));
    }
    let ids = |filter: RunFilter, after: Option<&str>, limit| -> Vec<String> {
        let after = after.and_then(|id| done(store.run(id))).map(|run| run.place());
        done(store.runs(filter, after, limit))
            .into_iter()
            .map(|run| run.id)
            .collect()
    };
    let expected = |keep: &dyn Fn(usize) -> bool| -> Vec<String> {
        (0..30)
            .filter(|number| keep(*number))
            .map(|number| format!("run-{number:02}"))
            .collect()
    };
    assert_eq!(ids(RunFilter::default(), None, 100), expected(&|_| true));
    assert_eq!(ids(RunFilter::default(), Some("run-03"), 2), ["run-04", "run-05"]);
    assert_eq!(ids(RunFilter::live(), None, 100), expected(&|number| number % 8 < 4));
    let waiting = RunFilter {
        status: Some("WAITING".into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(waiting, None, 100), expected(&|number| matches!(number % 8, 1..=3)));
    let of_session = RunFilter {
        session: Some("s".into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(of_session.clone(), Some("run-10"), 2), ["run-12", "run-15"]);
    let live_of_session = RunFilter {
        live: true,
        ..of_session.clone()
    };
    let is_live_of_session = |number: usize| number.is_multiple_of(3) && number % 8 < 4;
    assert_eq!(ids(live_of_session, None, 100), expected(&is_live_of_session));
    let youngest = RunFilter {
        youngest_first: true,
        ..RunFilter::default()
    };
    let reversed: Vec<String> = expected(&|_| true).into_iter().rev().collect();
    assert_eq!(ids(youngest.clone(), None, 100), reversed);
    assert_eq!(ids(youngest, Some("run-21"), 3), ["run-20", "run-19", "run-18"]);
    let of_workflow = |workflow: &str, live| RunFilter {
        workflow: Some(workflow.into()),
        live,
        ..RunFilter::default()
    };
    let is_other = |number: usize| number.is_multiple_of(5);
    assert_eq!(ids(of_workflow("other", false), None, 100), expected(&is_other));
    assert_eq!(
        ids(of_workflow("other", false), Some("run-05"), 2),
        ["run-10", "run-15"]
    );
    assert_eq!(
        ids(of_workflow("flow", false), None, 100),
        expected(&|number| !is_other(number))
    );
    assert_eq!(
        ids(of_workflow("other", true), None, 100),
        expected(&|number| is_other(number) && number % 8 < 4)
    );
    let youngest_of_workflow = RunFilter {
        youngest_first: true,
        ..of_workflow("other", false)
    };
    assert_eq!(ids(youngest_of_workflow.clone(), None, 2), ["run-25", "run-20"]);
    assert_eq!(ids(youngest_of_workflow, Some("run-20"), 2), ["run-15", "run-10"]);
    let of_both = RunFilter {
        session: Some("s".into()),
        ..of_workflow("other", false)
    };
    assert_eq!(ids(of_both, None, 100), ["run-00", "run-15"]);
    assert_eq!(ids(of_workflow("othe", false), None, 100), Vec::<String>::new());
    let unknown = RunFilter {
        status: Some("ASLEEP".into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(unknown, None, 100), Vec::<String>::new());
    // The lists are updated when a run changes, or is removed.
    done(store.commit(Commit::after("run-00", 0).status(RunStatus::Failed)));
    done(store.remove(vec!["run-03".into()], false));
    let of_live = ids(RunFilter::live(), None, 100);
    assert!(!of_live.contains(&"run-00".to_owned()) && !of_live.contains(&"run-03".to_owned()));
    assert_eq!(ids(of_session, None, 2), ["run-00", "run-06"]);
    assert!(!ids(of_workflow("other", true), None, 100).contains(&"run-00".to_owned()));
    // The owner is the part of the id before the first `~`.
    for (id, workflow) in [
        ("a~1", "flow"),
        ("ab~1", "flow"),
        ("a~2", "other"),
        ("a~b~3", "flow"),
        ("~4", "flow"),
        ("a", "flow"),
    ] {
        let mut commit = start(id);
        if let crate::Precondition::Start(new) = &mut commit.follows {
            new.workflow = workflow.into();
            new.started_at = 100;
        }
        done(store.commit(commit));
    }
    let of_owner = |owner: &str| RunFilter {
        owner: Some(owner.into()),
        ..RunFilter::default()
    };
    assert_eq!(ids(of_owner("a"), None, 100), ["a~1", "a~2", "a~b~3"]);
    assert_eq!(ids(of_owner("a"), Some("a~1"), 1), ["a~2"]);
    assert_eq!(ids(of_owner(""), None, 100), ["~4"]);
    assert_eq!(ids(of_owner("b"), None, 100), Vec::<String>::new());
    let other_of_owner = RunFilter {
        owner: Some("a".into()),
        ..of_workflow("other", true)
    };
    assert_eq!(ids(other_of_owner, None, 100), ["a~2"]);
    done(store.commit(Commit::after("a~1", 0).status(RunStatus::Completed)));
    done(store.remove(vec!["a~b~3".into()], false));
    let live_of_owner = RunFilter {
        live: true,
        ..of_owner("a")
    };
    assert_eq!(ids(live_of_owner, None, 100), ["a~2"]);
}

fn order(open: &Open) {
    let store = open();
    let begun = store.commit(start("run-1"));
    let steps: Vec<_> = (1..=50)
        .map(|number| store.commit(Commit::after("run-1", number - 1).record(record(number))))
        .collect();
    let read = store.journal("run-1", 0, 100);
    let later = store.commit(Commit::after("run-1", 50).record(record(51)));
    assert_eq!(done(begun), 0);
    assert_eq!(
        steps.into_iter().map(done).collect::<Vec<_>>(),
        (1..=50).collect::<Vec<_>>()
    );
    assert_eq!(
        done(read).len(),
        50,
        "a read sees the commits sent before it and no later ones"
    );
    assert_eq!(done(later), 51);
}

fn texts(open: &Open) {
    let store = open();
    done(store.commit(start("run-\u{7dda}")));
    let texts =
        [0, 1, 500, 4_000, 4_100, 100_000, 3_000_000].map(|len| "\u{7dda}".repeat(len / 3) + &"x".repeat(len % 3));
    for (step, text) in texts.iter().enumerate() {
        done(
            store
                .commit(Commit::after("run-\u{7dda}", step as u64).record(crate::Record::new(u64::MAX, text.as_str()))),
        );
    }
    drop(store);
    assert!(bodies(&*open(), "run-\u{7dda}") == texts);
    let long = "x".repeat(600);
    for id in ["", "a\0b", &long] {
        assert_eq!(refused(open().commit(start(id))).code(), "STORE_LIMIT");
    }
}
