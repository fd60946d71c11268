//! Records the events of a run in its log, until the event stream ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use tokio::runtime::Handle;

use crate::runs::Run;
use crate::state::Service;
use pirn::store::RunStatus;
use pirn::{Event, EventType, Events, SubscriptionItem, TokenUsage};

/// Capacity of the channel of events that wait to be recorded.
pub(crate) const BUFFER: usize = 65_536;

impl Service {
    /// Sets the runtime on which requests are served to the caller's, unless it is set or the caller is on none.
    pub(crate) fn enter_runtime(&self) {
        if self.runtime().get().is_some() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let runtime = self.runtime().get_or_init(|| runtime);
        self.sample_metrics(runtime);
        let early = std::mem::take(&mut *self.early());
        for (run, events) in early {
            self.record_on(runtime, run, events);
        }
    }

    /// Spawns the recorder of a run's events.
    pub(crate) fn record(&self, run: &Arc<Run>, events: Events) {
        let run = Arc::clone(run);
        let mut early = self.early();
        match self.runtime().get() {
            Some(runtime) => {
                drop(early);
                self.record_on(runtime, run, events);
            }
            // Push while the lock is held, so that `enter_runtime` cannot miss the entry.
            None => early.push((run, events)),
        }
    }

    fn record_on(&self, runtime: &Handle, run: Arc<Run>, events: Events) {
        let recording = record(self.clone(), run, events);
        self.tasks().spawn_on(recording, runtime);
    }
}

async fn record(service: Service, run: Arc<Run>, mut events: Events) {
    let main_thread = run.main_thread();
    let mut meter = service.metrics().of_run(&run.info.workflow_id, run.replayed.until);
    // A resumed run requests an interrupted reply again, so pieces from before the restart are void: mark the first new piece.
    let is_resumed = run.log.first_piece() > 1;
    let mut speaking = BTreeSet::new();
    // Tokens that a fork shares with its base.
    let mut shared = TokenUsage::default();
    let (mut has_begun, mut has_outcome) = (is_resumed, false);
    // The first event ends the wait for the session.
    let mut may_be_queued = run.info.session.is_some();
    loop {
        let heard = tokio::select! {
            biased;
            heard = events.next() => heard,
            report = run.handle.outcome(), if !has_outcome => {
                has_outcome = true;
                // Detached branches delay the end of the events, which reports the end of any other run.
                if run.has_ended() && report.threads.iter().any(|thread| !thread.status.is_final()) {
                    service.runs().changed(&run);
                }
                continue;
            }
        };
        match heard {
            None => break,
            Some(SubscriptionItem::Event(mut event)) => {
                if !has_begun {
                    service.runs().began(&run);
                    has_begun = true;
                }
                let is_piece = event.raised.event_type == EventType::LlmToken;
                if is_resumed && is_piece && speaking.insert(Arc::clone(&event.thread_id)) {
                    Arc::make_mut(&mut event).raised.fields.set("restart", json!(true));
                }
                if *event.thread_id == *main_thread {
                    run.progress.observe(&event);
                }
                run.questions.observe(&event);
                run.figures.observe(&event);
                if event.timestamp <= run.replayed.shared_until {
                    shared = run.figures.used();
                }
                meter.observe(&event);
                let changes = changes_summary(event.raised.event_type);
                push(&run, event).await;
                service.runs().make_room(&run);
                if std::mem::take(&mut may_be_queued) || changes {
                    service.runs().changed(&run);
                }
            }
            Some(SubscriptionItem::Lagged(count)) => {
                meter.lost(count);
                run.log.skip(count);
            }
        }
    }
    // No event follows, so the report is final.
    let report = run.handle.outcome().await;
    let left = status_elsewhere(&service, &run).await;
    if let Some(status) = left {
        service.runs().leave(&run, status);
    } else {
        meter.ended(&report, run.duration_ms(&report), shared);
        run.release(report).await;
    }
    run.log.close();
    if left.is_none() {
        service.runs().ended(&run);
    }
    run.decided();
    if left.is_none() {
        service.runs().changed(&run);
        let tokens = run.figures.figures().tokens.unwrap_or_default();
        // Last: it may wait for the store.
        service.spend(run.id(), tokens.saturating_sub(shared.total)).await;
    }
}

/// True if an event of this type changes the status or the open questions of a run.
fn changes_summary(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::ThreadPaused
            | EventType::ThreadResumed
            | EventType::InteractionRequested
            | EventType::InteractionAnswered
            | EventType::InteractionWithdrawn
            | EventType::InteractionTimedOut
    )
}

/// Appends an event to the log. Long JSON is written on a blocking thread, so that it does not delay requests.
async fn push(run: &Arc<Run>, event: Arc<Event>) {
    if run.log.push_short(&event) {
        return;
    }
    let run = Arc::clone(run);
    let pushed = tokio::task::spawn_blocking(move || run.log.push(&event));
    pushed
        .await
        .unwrap_or_else(|error| tracing::error!(%error, "recording an event failed"));
}

/// Returns the run's status in the store if the run has ended in this process only, and can be resumed or was continued by another
/// process.
async fn status_elsewhere(service: &Service, run: &Run) -> Option<&'static str> {
    // The other process may have ended the run before this one learned that it had lost it: the outcome here is no outcome then.
    let may_be_continued = service.is_shared() && run.may_continue_elsewhere();
    match service.in_store(run.id()).await {
        Ok(Some(stored)) => Some(stored.status)
            .filter(|status| !status.is_final() || may_be_continued)
            .map(RunStatus::as_str),
        Ok(None) => None,
        // The store failed: treat the run as unfinished, since clients have received only events that the store has.
        Err(_) => Some(RunStatus::Unfinished.as_str()),
    }
}
