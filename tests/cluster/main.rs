//! Workers that share a server, as they are killed, paused and started again.
#![allow(
    clippy::disallowed_methods,
    reason = "processes live by the real clock: a claim runs out, a pause is longer than that"
)]

mod cluster;
mod commands;
mod faults;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "restate")]
mod restate;
mod schedules;
mod services;

/// Generates the tests of every engine with the cluster that `$start` returns, or `$alone` if the test kills the server; they pass
/// without a check if it returns `None`.
macro_rules! with_each_engine {
    ($start:path, $alone:path) => {
        crate::with_each_engine!($start =>
            commands::a_run_of_a_killed_process_ends_in_a_worker_with_each_effect_once,
            commands::a_question_is_answered_with_and_without_an_owner_of_the_run,
            commands::runs_put_into_the_server_are_executed_by_workers_and_those_of_a_session_in_order,
            commands::a_cancel_stops_a_running_call_of_a_worker,
            commands::a_terminated_worker_releases_its_runs_at_once,
            services::a_service_that_owns_no_run_starts_shows_and_controls_runs_of_workers,
            services::an_idempotency_key_starts_one_run_across_all_services,
            services::services_stream_a_run_of_a_worker_live_also_when_the_worker_is_killed,
            services::a_run_is_read_and_answered_at_another_service_until_and_after_its_owner_is_killed,
            schedules::a_schedule_cancels_its_previous_run_after_another_worker_took_it_over,
            schedules::a_suspended_worker_starts_no_run_at_times_that_another_worker_has_skipped,
            faults::a_suspended_worker_writes_nothing_for_a_run_that_another_took_over,
        );
        crate::with_each_engine!($alone => faults::every_run_ends_once_under_faults_of_workers_and_the_server);
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
