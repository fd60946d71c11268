//! Termination of a run: when its outcome is sent, and when the run has settled.
//!
//! | phase | main and everything attached have ended | triggers are quiet | nothing remains |
//! |---|---|---|---|
//! | Running | a watched event was raised: request, **Quieting**; else report, **Reported** | - | - |
//! | Quieting | - | a call holds the outcome: **Running**; new events: request again; else report, **Reported** | - |
//! | Reported | - | - | a watched event was raised: request, **Settling**; else settle, **Settled** |
//! | Settling | - | something remains: **Reported**; new events: request again; else settle, **Settled** | - |
//! | Settled | - | - | - |
//!
//! A `-` changes nothing. A request is answered when the triggers are quiet: they have acted on all events raised before it.
//!
//! "Attached" and "remaining" count threads and trigger calls; a durable run makes these calls itself. The effects of a run's last
//! events belong to the run, so that its report waits for them. A run that raised no watched event does not wait. Detached threads
//! may run for ever: the report waits neither for them nor for more trigger links of their events than a chain may have.

use serde::{Deserialize, Serialize};

/// Maximum number of consecutive requests for quiet. A chain of triggers has fewer links. Without a bound, the events of a detached
/// thread could postpone the outcome for ever.
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

/// Next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum TerminationAction {
    /// Request a message when the triggers of all raised events have acted.
    AskTriggers,
    /// Send the outcome.
    Report,
    /// Settle: nothing of the run remains.
    Settle,
}

/// State of the termination. The module documentation has the transition table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct Termination {
    phase: Phase,
    /// Number of requests since the last wait for a trigger's call.
    rounds: u32,
    /// A watched event was raised after the last request.
    is_watched: bool,
}

impl Termination {
    /// Records that a watched event was raised.
    pub(in crate::run) fn raised(&mut self) {
        self.is_watched = true;
    }

    /// Handles the end of a thread or a call. `main_ended`: the main thread has ended; `attached`: number of open threads and calls
    /// that the outcome waits for; `left`: number of all open threads and calls.
    pub(in crate::run) fn ended(
        &mut self,
        main_ended: bool,
        attached: usize,
        left: usize,
    ) -> Option<TerminationAction> {
        match self.phase {
            Phase::Running if main_ended && attached == 0 => Some(self.quiet()),
            Phase::Reported if left == 0 => Some(self.settle()),
            // While a request is open, its answer decides: `triggers_quiet` reads the counts of that time.
            Phase::Running | Phase::Quieting | Phase::Reported | Phase::Settling | Phase::Settled => None,
        }
    }

    /// Handles the answer that the triggers have acted on all events raised before the request. `calls`: number of open trigger
    /// calls that the outcome waits for; `left`: see [`Self::ended`].
    pub(in crate::run) fn triggers_quiet(&mut self, calls: usize, left: usize) -> Option<TerminationAction> {
        match self.phase {
            // The end of the last call makes a new request. A call ends once and may start a new chain, so that the count restarts.
            Phase::Quieting if calls > 0 => {
                self.rounds = 0;
                self.phase = Phase::Running;
                None
            }
            Phase::Quieting => Some(self.quiet()),
            // A trigger has called something. The end of the call arrives at `ended`, which settles the run then.
            Phase::Settling if left > 0 => {
                self.phase = Phase::Reported;
                None
            }
            Phase::Settling => Some(self.settle()),
            Phase::Running | Phase::Reported | Phase::Settled => None,
        }
    }

    /// Returns true if the run has settled.
    pub(in crate::run) fn is_settled(&self) -> bool {
        self.phase == Phase::Settled
    }

    fn quiet(&mut self) -> TerminationAction {
        if self.asks() {
            self.phase = Phase::Quieting;
            return TerminationAction::AskTriggers;
        }
        self.phase = Phase::Reported;
        TerminationAction::Report
    }

    fn settle(&mut self) -> TerminationAction {
        if self.asks() {
            self.phase = Phase::Settling;
            return TerminationAction::AskTriggers;
        }
        self.phase = Phase::Settled;
        TerminationAction::Settle
    }

    /// Returns true, and counts a round, if quiet must be requested again.
    fn asks(&mut self) -> bool {
        // Events raised so far are covered by this request. A later one sets the flag again.
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
    fn a_run_without_trigger_events_reports_at_once_and_settles_with_its_last_thread() {
        let mut end = Termination::default();
        assert_eq!(end.ended(false, 1, 2), None, "main runs");
        assert_eq!(end.ended(true, 1, 2), None, "something attached runs");
        assert_eq!(
            end.ended(true, 0, 1),
            Some(TerminationAction::Report),
            "a detached one may run on"
        );
        assert_eq!(end.ended(true, 0, 1), None);
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::Settle));
        assert_eq!(end.ended(true, 0, 0), None);
    }

    #[test]
    fn a_report_waits_for_a_bounded_number_of_trigger_rounds() {
        let mut end = Termination::default();
        end.raised();
        assert_eq!(end.ended(true, 0, 1), Some(TerminationAction::AskTriggers));
        assert_eq!(end.ended(true, 0, 0), None, "the report comes first");
        for _ in 1..MAX_QUIESCE_ROUNDS {
            end.raised();
            assert_eq!(end.triggers_quiet(0, 0), Some(TerminationAction::AskTriggers));
        }
        end.raised();
        assert_eq!(end.triggers_quiet(0, 0), Some(TerminationAction::Report));
        assert_eq!(end.triggers_quiet(0, 0), None);
    }

    #[test]
    fn a_report_waits_for_attached_trigger_calls_and_settling_for_detached_calls() {
        let mut end = Termination::default();
        end.raised();
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::AskTriggers));
        assert_eq!(end.triggers_quiet(1, 2), None, "one is awaited");
        assert_eq!(end.ended(true, 0, 1), Some(TerminationAction::Report), "it has ended");
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::Settle), "and the other");
    }

    #[test]
    fn a_report_waits_for_each_call_of_a_trigger_chain() {
        let mut end = Termination::default();
        end.raised();
        for _ in 0..5 * MAX_QUIESCE_ROUNDS {
            assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::AskTriggers));
            assert_eq!(end.triggers_quiet(1, 1), None, "a trigger calls once more");
            end.raised();
        }
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::AskTriggers));
        assert_eq!(end.triggers_quiet(0, 0), Some(TerminationAction::Report));
    }

    #[test]
    fn triggers_act_on_events_of_a_detached_thread_before_the_run_settles() {
        let mut end = Termination::default();
        assert_eq!(end.ended(true, 0, 1), Some(TerminationAction::Report));
        end.raised();
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::AskTriggers));
        assert!(!end.is_settled());
        assert_eq!(end.triggers_quiet(0, 1), None, "one of them calls something");
        assert_eq!(end.ended(true, 0, 0), Some(TerminationAction::Settle));
        assert!(end.is_settled());
    }

    proptest! {
        #[test]
        fn a_run_reports_once_and_then_settles_once(inputs in prop::collection::vec((0..3_u8, any::<bool>(), 0..2_usize, 0..2_usize), 0..60)) {
            let mut end = Termination::default();
            let (mut asked, mut actions) = (0_u32, Vec::new());
            let waits = inputs.iter().filter(|(input, _, attached, _)| *input == 1 && *attached > 0).count();
            for (input, main_ended, attached, detached) in inputs {
                let quiet = match input {
                    0 => { end.raised(); None }
                    1 => end.triggers_quiet(attached, attached + detached),
                    _ => end.ended(main_ended, attached, attached + detached),
                };
                match quiet {
                    Some(TerminationAction::AskTriggers) => asked += 1,
                    Some(quiet) => actions.push(quiet),
                    None => {}
                }
            }
            prop_assert!(asked as usize <= (waits + 1) * MAX_QUIESCE_ROUNDS as usize);
            prop_assert!([TerminationAction::Report, TerminationAction::Settle].starts_with(&actions), "{:?}", actions);
        }
    }
}
