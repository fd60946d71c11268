//! Workers that share a server, as they are killed, paused and started again.
#![allow(
    clippy::disallowed_methods,
    reason = "processes live by the real clock: a claim runs out, a pause is longer than that"
)]

mod cluster;
mod commands;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "restate")]
mod restate;
mod services;
mod storms;

/// Generates the tests of every engine with the cluster that `$start` returns; they pass without a check if it returns `None`.
macro_rules! with_each_engine {
    ($start:path) => {
        crate::with_each_engine!($start =>
            commands::a_run_of_a_killed_process_ends_in_a_worker_with_each_effect_once,
            commands::a_question_is_answered_whichever_process_carries_the_run_or_none,
            commands::runs_that_are_put_into_the_server_are_carried_by_workers_and_those_of_a_session_in_their_order,
            commands::a_cancel_stops_a_call_that_is_under_way_in_a_worker,
            commands::a_worker_that_is_told_to_stop_hands_its_runs_on_at_once,
            services::a_service_that_carries_nothing_starts_shows_and_steers_runs_of_workers,
            services::an_idempotency_key_starts_one_run_over_all_services,
            storms::every_run_ends_once_whatever_happens_to_workers_and_server,
            storms::a_worker_that_wakes_up_writes_nothing_for_a_run_that_another_has_taken_over,
        );
    };
    ($start:path => $($module:ident::$name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                if let Some(cluster) = $start() {
                    crate::$module::$name(&cluster);
                }
            }
        )*
    };
}
pub(crate) use with_each_engine;
