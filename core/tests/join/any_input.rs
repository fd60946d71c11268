//! Arbitrary inputs in arbitrary order: the invariants of the machine hold.

use pirn_core::join::{Conversation, Effect, ForkJoinMachine, Input, PathEnd, Verdict};
use pirn_definition::definition::{ForkStrategy, JoinStrategy, MergeVariables, OnDecided};
use proptest::prelude::*;

use super::fork::fork;

fn end() -> impl Strategy<Value = PathEnd> {
    prop_oneof![
        Just(PathEnd::Completed),
        Just(PathEnd::Failed),
        Just(PathEnd::Timeout),
        Just(PathEnd::Cancelled),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        1 => Just(Input::Start),
        6 => (0..7_usize, end()).prop_map(|(path, end)| Input::Ended { path, end }),
        1 => (0..3_u32).prop_map(|generation| Input::Deadline { generation }),
        1 => Just(Input::Cancel),
    ]
}

fn strategy() -> impl Strategy<Value = JoinStrategy> {
    prop_oneof![
        Just(JoinStrategy::AllCompleted),
        Just(JoinStrategy::AnyCompleted),
        Just(JoinStrategy::AllFailed),
        Just(JoinStrategy::AnyFailed),
        Just(JoinStrategy::SuccessCountThreshold),
    ]
}

prop_compose! {
    /// Includes rules that validation rejects: no paths, a threshold or a main path out of range.
    fn machine()(
        paths in 0..6_usize,
        strategy in strategy(),
        serial in any::<bool>(),
        threshold in 0..7_u32,
        timeout_ms in prop::option::of(0..2_u64),
        main_path in 0..7_usize,
        main_path_explicit in any::<bool>(),
        detach in any::<bool>(),
        merge in prop_oneof![Just(MergeVariables::None), Just(MergeVariables::Main), Just(MergeVariables::All)],
        max_concurrent in prop::option::of(0..7_u32),
    ) -> (ForkJoinMachine, usize) {
        let mut fork = fork(paths, strategy);
        fork.strategy = if serial { ForkStrategy::Serial } else { ForkStrategy::Parallel };
        fork.join.threshold = threshold;
        fork.join.timeout_ms = timeout_ms;
        fork.join.main_path = main_path;
        fork.join.main_path_explicit = main_path_explicit;
        fork.join.on_decided = if detach { OnDecided::Detach } else { OnDecided::Cancel };
        fork.join.merge_variables = merge;
        let bound = if serial { 1 } else { max_concurrent.map_or(paths, |bound| bound.max(1) as usize) };
        (ForkJoinMachine::new(&fork, max_concurrent), bound)
    }
}

proptest! {
    #[test]
    fn a_join_decides_once_and_never_panics((mut machine, bound) in machine(), inputs in prop::collection::vec(input(), 0..40)) {
        let mut log = Vec::new();
        for input in inputs {
            let before = machine.clone();
            let mut out = Vec::new();
            let answer = machine.step(input, &mut out);
            if answer.is_err() {
                prop_assert_eq!(&machine, &before);
                prop_assert!(out.is_empty());
            }
            if before.verdict().is_some() {
                prop_assert_eq!(answer, Ok(()));
                prop_assert_eq!(machine.verdict(), before.verdict());
                prop_assert_eq!(machine.paths(), before.paths());
                prop_assert!(out.iter().all(|effect| *effect == Effect::AllEnded));
            }
            prop_assert!(machine.live().count() <= bound);
            let text = serde_json::to_string(&machine)?;
            prop_assert_eq!(&serde_json::from_str::<ForkJoinMachine>(&text)?, &machine);
            log.extend(out);
        }
        let is_decided = |effect: &&Effect| matches!(effect, Effect::Decided { .. });
        let is_end = |effect: &&Effect| **effect == Effect::AllEnded;
        let decided = log.iter().position(|effect| is_decided(&effect));
        let ended = log.iter().position(|effect| is_end(&effect));
        prop_assert_eq!(decided.is_some(), machine.verdict().is_some());
        prop_assert_eq!(ended.is_some(), decided.is_some() && machine.live().count() == 0);
        prop_assert!(ended.is_none() || ended > decided);
        let (decisions, ends) = (log.iter().filter(is_decided).count(), log.iter().filter(is_end).count());
        prop_assert!(decisions <= 1 && ends <= 1);
    }

    #[test]
    fn a_verdict_uses_only_paths_that_were_never_excluded(
        (mut machine, _) in machine(),
        inputs in prop::collection::vec(input(), 0..40),
    ) {
        let mut was_unwanted = [false; 8];
        for input in inputs {
            for (path, was_unwanted) in was_unwanted.iter_mut().enumerate() {
                *was_unwanted |= !machine.may_take_over(path);
            }
            let before = machine.verdict().cloned();
            // Rejected inputs change nothing.
            let _: Result<(), _> = machine.step(input, &mut Vec::new());
            if let (None, Some(Verdict::Succeeded { conversation, merge })) = (before, machine.verdict()) {
                let source = match conversation {
                    Conversation::ReplaceWith(path) => Some(*path),
                    Conversation::Unchanged => None,
                };
                for path in merge.iter().copied().chain(source) {
                    prop_assert!(!was_unwanted[path], "{machine:?} asks for {path}");
                }
            }
        }
    }
}
