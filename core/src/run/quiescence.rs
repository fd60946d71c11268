//! The end of a run: when its outcome is told, and when nothing of it is left.
//!
//! | phase | main and all attached to it have ended | the triggers are quiet | nothing is left |
//! |---|---|---|---|
//! | Running | something was raised that a trigger watches: asks for quiet, **Quieting**; else reports, **Reported** | nothing | - |
//! | Quieting | nothing | **Running** where a call has not ended that the outcome waits for; asks again where more was raised; else reports, **Reported** | nothing |
//! | Reported | nothing | nothing | something was raised that a trigger watches: asks for quiet, **Settling**; else settles, **Settled** |
//! | Settling | nothing | **Reported** where something is left again; asks again where more was raised; else settles, **Settled** | nothing |
//! | Settled | nothing | nothing | nothing |
//!
//! Attached, and left, are threads, and calls of triggers: a run that is kept makes those itself. The effects of a run's last events, and what follows from them, belong to the run: its report waits for them. A run
//! that raised nothing which a trigger watches waits for nobody. Detached threads may go on for ever: a report does not
//! wait for them, nor for more links of what their events set off than a chain of triggers has.

use serde::{Deserialize, Serialize};

/// Rounds in which triggers are asked, one after another, whether they have acted: more than a chain of triggers has links. The
/// events of a detached thread could prolong them without end.
pub const MAX_QUIESCE_ROUNDS: u32 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    #[default]
    Running,
    Quieting,
    Reported,
    Settling,
    Settled,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quiet {
    /// Ask whether the triggers of what was raised have acted.
    AskTriggers,
    /// Tell the outcome.
    Report,
    /// Nothing of the run is left.
    Settle,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Quiescence {
    phase: Phase,
    /// Rounds since a call of a trigger was last waited for.
    rounds: u32,
    /// Something was raised that a trigger watches, and whether they have acted was not asked since.
    is_watched: bool,
}

impl Quiescence {
    /// Something was raised that a trigger watches.
    pub(super) fn raised(&mut self) {
        self.is_watched = true;
    }

    /// A thread or a call has ended. `main_ended`: the main thread has; `attached` and `left`: so many have not that are
    /// attached to the outcome, and in all.
    pub(super) fn ended(&mut self, main_ended: bool, attached: usize, left: usize) -> Option<Quiet> {
        match self.phase {
            Phase::Running if main_ended && attached == 0 => Some(self.quiet()),
            Phase::Reported if left == 0 => Some(self.settle()),
            Phase::Running | Phase::Quieting | Phase::Reported | Phase::Settling | Phase::Settled => None,
        }
    }

    /// The triggers have acted on what was raised before it was asked. `calls`: so many of theirs have not ended that are
    /// attached to the outcome; `left`: as for [`Self::ended`].
    pub(super) fn triggers_quiet(&mut self, calls: usize, left: usize) -> Option<Quiet> {
        match self.phase {
            // The last of them asks again. Each call ends once and may start a chain of its own, so the rounds start over.
            Phase::Quieting if calls > 0 => {
                self.rounds = 0;
                self.phase = Phase::Running;
                None
            }
            Phase::Quieting => Some(self.quiet()),
            Phase::Settling if left > 0 => {
                self.phase = Phase::Reported;
                None
            }
            Phase::Settling => Some(self.settle()),
            Phase::Running | Phase::Reported | Phase::Settled => None,
        }
    }

    /// True once nothing is left.
    pub(super) fn is_settled(&self) -> bool {
        self.phase == Phase::Settled
    }

    fn quiet(&mut self) -> Quiet {
        if self.asks() {
            self.phase = Phase::Quieting;
            return Quiet::AskTriggers;
        }
        self.phase = Phase::Reported;
        Quiet::Report
    }

    fn settle(&mut self) -> Quiet {
        if self.asks() {
            self.phase = Phase::Settling;
            return Quiet::AskTriggers;
        }
        self.phase = Phase::Settled;
        Quiet::Settle
    }

    /// True if triggers are to be asked once more.
    fn asks(&mut self) -> bool {
        let asks = std::mem::take(&mut self.is_watched) && self.rounds < MAX_QUIESCE_ROUNDS;
        self.rounds += u32::from(asks);
        asks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_that_raised_nothing_of_interest_reports_at_once_and_settles_with_its_last_thread() {
        let mut end = Quiescence::default();
        assert_eq!(end.ended(false, 1, 2), None, "main runs");
        assert_eq!(end.ended(true, 1, 2), None, "something attached runs");
        assert_eq!(end.ended(true, 0, 1), Some(Quiet::Report), "a detached one may run on");
        assert_eq!(end.ended(true, 0, 1), None);
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::Settle));
        assert_eq!(end.ended(true, 0, 0), None);
    }

    #[test]
    fn a_report_waits_for_what_the_last_events_set_off_and_not_for_ever() {
        let mut end = Quiescence::default();
        end.raised();
        assert_eq!(end.ended(true, 0, 1), Some(Quiet::AskTriggers));
        assert_eq!(end.ended(true, 0, 0), None, "the report comes first");
        for _ in 1..MAX_QUIESCE_ROUNDS {
            end.raised();
            assert_eq!(end.triggers_quiet(0, 0), Some(Quiet::AskTriggers));
        }
        end.raised();
        assert_eq!(end.triggers_quiet(0, 0), Some(Quiet::Report));
        assert_eq!(end.triggers_quiet(0, 0), None);
    }

    #[test]
    fn a_report_waits_for_the_calls_of_triggers_and_the_end_for_those_that_nobody_awaits() {
        let mut end = Quiescence::default();
        end.raised();
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::AskTriggers));
        assert_eq!(end.triggers_quiet(1, 2), None, "one is awaited");
        assert_eq!(end.ended(true, 0, 1), Some(Quiet::Report), "it has ended");
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::Settle), "and the other");
    }

    #[test]
    fn a_report_waits_for_each_of_many_calls_that_start_one_another() {
        let mut end = Quiescence::default();
        end.raised();
        for _ in 0..5 * MAX_QUIESCE_ROUNDS {
            assert_eq!(end.ended(true, 0, 0), Some(Quiet::AskTriggers));
            assert_eq!(end.triggers_quiet(1, 1), None, "a trigger calls once more");
            end.raised();
        }
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::AskTriggers));
        assert_eq!(end.triggers_quiet(0, 0), Some(Quiet::Report));
    }

    #[test]
    fn triggers_act_on_what_a_detached_thread_raised_before_the_run_settles() {
        let mut end = Quiescence::default();
        assert_eq!(end.ended(true, 0, 1), Some(Quiet::Report));
        end.raised();
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::AskTriggers));
        assert!(!end.is_settled());
        assert_eq!(end.triggers_quiet(0, 1), None, "one of them calls something");
        assert_eq!(end.ended(true, 0, 0), Some(Quiet::Settle));
        assert!(end.is_settled());
    }

    proptest! {
        #[test]
        fn whatever_comes_a_run_reports_once_and_settles_once_after_that(inputs in prop::collection::vec((0..3_u8, any::<bool>(), 0..2_usize, 0..2_usize), 0..60)) {
            let mut end = Quiescence::default();
            let (mut asked, mut told) = (0_u32, Vec::new());
            let waits = inputs.iter().filter(|(input, _, attached, _)| *input == 1 && *attached > 0).count();
            for (input, main_ended, attached, detached) in inputs {
                let quiet = match input {
                    0 => { end.raised(); None }
                    1 => end.triggers_quiet(attached, attached + detached),
                    _ => end.ended(main_ended, attached, attached + detached),
                };
                match quiet {
                    Some(Quiet::AskTriggers) => asked += 1,
                    Some(quiet) => told.push(quiet),
                    None => {}
                }
            }
            prop_assert!(asked as usize <= (waits + 1) * MAX_QUIESCE_ROUNDS as usize);
            prop_assert!([Quiet::Report, Quiet::Settle].starts_with(&told), "{:?}", told);
        }
    }
}
