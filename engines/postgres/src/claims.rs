//! Claims of this process: heartbeats, new claims, and polling for turns, requests, answers and ends of runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use pirn_store::{Assignment, StoreError};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::connection::connect::{Connection, Server};
use crate::connection::fault::Fault;
use crate::read::Answer;
use crate::reply::answer;

/// Interval at which an idle process polls for work; notifications shorten it.
const POLL: Duration = Duration::from_millis(100);
/// Poll interval while a call waits for an answer or a turn.
const POLL_SOON: Duration = Duration::from_millis(20);
/// Maximum number of runs claimed by one query. The rest stays for other idle processes.
const AT_ONCE: usize = 8;
/// Number of heartbeats in one claim duration.
const HEARTBEATS: u32 = 4;

/// Local view of this process's claims.
pub(crate) struct LocalClaims {
    /// Id of this store in its commits.
    pub(crate) writer: String,
    /// Unique name of this process in its claims.
    pub(crate) worker: String,
    /// Duration of a claim without a heartbeat.
    pub(crate) seconds: i32,
    number: AtomicI64,
    state: Mutex<State>,
    /// Notified when the next poll is due at once.
    pub(crate) wake: Arc<Notify>,
}

#[derive(Default)]
struct State {
    claims: BTreeMap<String, Claim>,
    turns: Vec<Turn>,
    tells: Vec<PendingInput>,
    ends: Vec<End>,
    /// Maximum number of runs owned by this process. At 0 the process takes over no runs.
    carries: usize,
    /// The last query claimed its maximum: more runs may be waiting, and are claimed as soon as there is room.
    has_backlog: bool,
}

#[derive(Clone)]
struct Claim {
    id: String,
    is_lost: bool,
    /// Time of the request that last confirmed the claim. The claim is valid for a claim duration after it.
    known: Instant,
}

/// Call that waits for the turn of a run.
struct Turn {
    session: String,
    run: String,
    answer: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// Call that waits for the end of a run.
struct End {
    run: String,
    answer: Option<oneshot::Sender<Result<(), StoreError>>>,
}

/// Call that waits for the answer to a request to a run of another process.
struct PendingInput {
    request: i64,
    answer: Option<oneshot::Sender<Result<Option<String>, StoreError>>>,
}

impl LocalClaims {
    pub(crate) fn new(writer: String, worker: String, seconds: i32) -> Self {
        Self {
            writer,
            worker,
            seconds,
            number: AtomicI64::new(1),
            state: Mutex::default(),
            wake: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_number(&self) -> i64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the claim of a write. A lost claim is returned too, so that the server refuses the write.
    pub(crate) fn claim_of(&self, run: &str) -> Option<String> {
        self.state().claims.get(run).map(|claim| claim.id.clone())
    }

    /// Records a claim. `asked` is the time of the request: the server's timer starts later, so the estimate is conservative.
    pub(crate) fn put(&self, run: &str, id: String, asked: Instant) {
        let claim = Claim {
            id,
            is_lost: false,
            known: asked,
        };
        self.state().claims.insert(run.to_owned(), claim);
    }

    fn lasts(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds.unsigned_abs()))
    }

    /// True if the claim is certainly valid without a query. Also true for a run that this process has not claimed.
    pub(crate) fn is_surely_valid(&self, run: &str) -> bool {
        let state = self.state();
        let claim = state.claims.get(run);
        // A quarter of the duration remains as a margin for the time until the effect has started.
        claim.is_none_or(|claim| !claim.is_lost && claim.known.elapsed() < self.lasts() / 4 * 3)
    }

    /// Records that a request sent at `asked` extended the claim.
    fn extended(&self, run: &str, id: &str, asked: Instant) {
        let mut state = self.state();
        // The run may have been released and claimed anew since the request.
        if let Some(claim) = state.claims.get_mut(run).filter(|claim| claim.id == id) {
            claim.known = asked;
        }
    }

    pub(crate) fn forget(&self, run: &str) -> Option<String> {
        let mut state = self.state();
        let claim = state.claims.remove(run)?;
        // A slot is free now, and the last query left runs behind.
        if state.has_backlog {
            self.wake.notify_one();
        }
        Some(claim.id)
    }

    /// Marks a claim as lost and logs it. Returns true on the first call for the claim.
    pub(crate) fn lose(&self, run: &str) -> bool {
        let mut state = self.state();
        // The new owner waits for the turn.
        state.turns.retain(|turn| turn.run != run);
        let claim = state.claims.get_mut(run);
        let is_first = claim.is_some_and(|claim| !std::mem::replace(&mut claim.is_lost, true));
        if is_first {
            tracing::warn!(
                run_id = run,
                "the claim on the run expired: another worker continues it"
            );
        }
        is_first
    }

    pub(crate) fn carry(&self, at_most: usize) {
        self.state().carries = at_most;
        self.wake.notify_one();
    }

    /// Returns the ids of all claimed runs.
    pub(crate) fn runs(&self) -> Vec<String> {
        self.state().claims.keys().cloned().collect()
    }

    pub(crate) fn wait_turn(&self, session: &str, run: &str, answer: oneshot::Sender<Result<(), StoreError>>) {
        self.state().turns.push(Turn {
            session: session.to_owned(),
            run: run.to_owned(),
            answer: Some(answer),
        });
        self.wake.notify_one();
    }

    pub(crate) fn wait_end(&self, run: &str, answer: oneshot::Sender<Result<(), StoreError>>) {
        self.state().ends.push(End {
            run: run.to_owned(),
            answer: Some(answer),
        });
        self.wake.notify_one();
    }

    pub(crate) fn wait_told(&self, request: i64, answer: oneshot::Sender<Result<Option<String>, StoreError>>) {
        self.state().tells.push(PendingInput {
            request,
            answer: Some(answer),
        });
        self.wake.notify_one();
    }

    /// Returns the claims to extend, by claim id.
    fn alive(&self) -> BTreeMap<String, String> {
        let state = self.state();
        // A lost claim cannot be extended, and extending it would only repeat the answer.
        let alive = state.claims.iter().filter(|(_, claim)| !claim.is_lost);
        alive.map(|(run, claim)| (claim.id.clone(), run.clone())).collect()
    }
}

/// Maintains the claims and claims new runs, until the future is dropped.
pub(crate) struct ClaimMaintainer {
    pub(crate) server: Server,
    pub(crate) held: Arc<LocalClaims>,
    pub(crate) assignments: UnboundedSender<Assignment>,
    pub(crate) connection: Option<Connection>,
    /// Requests that were forwarded to the engine and have no answer yet.
    pub(crate) asked: BTreeSet<i64>,
    pub(crate) last_heartbeat: Instant,
}

impl ClaimMaintainer {
    pub(crate) async fn live(mut self) {
        let mut delay = POLL;
        loop {
            let looked = self.look().await;
            match looked {
                Ok(()) => {
                    let state = self.held.state();
                    let somebody_waits = !state.turns.is_empty() || !state.tells.is_empty();
                    // A turn and an answer are awaited by a caller; other work only by the store.
                    delay = if somebody_waits { POLL_SOON } else { POLL };
                }
                Err(Fault::Lost(why)) => {
                    if self.connection.take().is_some() {
                        tracing::warn!(
                            server = &*self.server.name,
                            why,
                            "claims cannot be extended: the connection is lost"
                        );
                    }
                    // At most a second, because claims expire while no heartbeat arrives.
                    delay = (delay * 2).min(Duration::from_secs(1));
                }
                // A conflict or a refusal concerns one query: the next poll may succeed.
                Err(Fault::Again(why) | Fault::Failed(why) | Fault::Refused(why, _)) => {
                    tracing::warn!(server = &*self.server.name, why, "a poll of the claims failed");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                // A stored permit of `notify_one` is not lost if it is given during `look`.
                () = self.held.wake.notified() => {}
            }
        }
    }

    fn assign(&self, assignment: Assignment) {
        // The receiver is gone with the engine: the claim expires.
        drop(self.assignments.send(assignment));
    }

    async fn look(&mut self) -> Result<(), Fault> {
        // Copied: the lock must not be held across an await.
        let claims = self.held.alive();
        let (carried, at_most, turns, tells, ends) = {
            let state = self.held.state();
            let waiting = (state.turns.len(), state.tells.len(), state.ends.len());
            (state.claims.len(), state.carries, waiting.0, waiting.1, waiting.2)
        };
        let is_idle = carried == 0 && turns == 0 && tells == 0 && ends == 0 && at_most == 0;
        // Without claims and waiting calls the keeper opens no connection.
        if is_idle {
            return Ok(());
        }
        if self.connection.is_none() {
            // Notifications of the server end the pause between two polls.
            let heard = Some(Arc::clone(&self.held.wake));
            let opened = self.server.open(heard).await;
            let connection = opened.map_err(|error| Fault::Lost(error.in_full()))?;
            // Through a pooler, notifications arrive in a session of somebody else: polling alone finds the work then.
            if !connection.is_pooled {
                connection.execute("LISTEN pirn").await?;
            }
            self.connection = Some(connection);
        }
        // Before other queries: a claim that expires costs more than a late answer.
        if self.last_heartbeat.elapsed() >= self.held.lasts() / HEARTBEATS && !claims.is_empty() {
            self.heartbeat(&claims).await?;
        }
        if carried > 0 {
            self.requests().await?;
        }
        if carried < at_most {
            let most = (at_most - carried).min(AT_ONCE);
            let has_backlog = self.claim_next(most).await? == most;
            self.held.state().has_backlog = has_backlog;
            // The next query follows without a pause as long as runs and room remain.
            if has_backlog && carried + most < at_most {
                self.held.wake.notify_one();
            }
        }
        if turns > 0 {
            self.turns().await?;
        }
        if tells > 0 {
            self.tells().await?;
        }
        if ends > 0 {
            self.ends().await?;
        }
        Ok(())
    }

    fn on(&self) -> Result<&Connection, Fault> {
        self.connection
            .as_ref()
            .ok_or_else(|| Fault::Lost("not connected".to_owned()))
    }

    async fn heartbeat(&mut self, claims: &BTreeMap<String, String>) -> Result<(), Fault> {
        let ids: Vec<&str> = claims.keys().map(String::as_str).collect();
        let sql = "SELECT claim, is_lost FROM pirn.extend($1::text[]::uuid[], $2, $3)";
        // Taken before the query, so that a slow answer does not make the claim look younger than it is.
        let (worker, seconds, asked) = (&self.held.worker, self.held.seconds, Instant::now());
        let rows = self.on()?.query(sql, &[&ids, worker, &seconds]).await?;
        let mut is_kept = true;
        let mut not_extended = BTreeSet::new();
        for row in rows {
            let (claim, is_lost): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
            not_extended.insert(claim.clone());
            // Rows of other claims were locked by commits: the heartbeat is not counted, and the next poll repeats it.
            is_kept &= is_lost;
            let Some(run) = claims.get(&claim).filter(|_| is_lost) else {
                continue;
            };
            // The run may have ended, or been released, since the list was made.
            if self.held.claim_of(run).as_ref() == Some(&claim) && self.held.lose(run) {
                self.assign(Assignment::Lost(run.clone()));
            }
        }
        for (claim, run) in claims.iter().filter(|(claim, _)| !not_extended.contains(*claim)) {
            self.held.extended(run, claim, asked);
        }
        if is_kept {
            self.last_heartbeat = Instant::now();
        }
        Ok(())
    }

    async fn requests(&mut self) -> Result<(), Fault> {
        // A lateral join, request by request: any other plan might read all runs to find the few that have requests.
        let sql = "SELECT q.id, r.id, q.body FROM pirn.requests q CROSS JOIN LATERAL (SELECT r.id FROM pirn.runs r \
              JOIN absurd.r_pirn a ON a.task_id = r.task AND a.state IN ('running', 'completed') AND a.claimed_by = $1 \
              WHERE r.key = q.run LIMIT 1) r \
            WHERE q.answer IS NULL ORDER BY q.id";
        let rows = self.on()?.query(sql, &[&self.held.worker]).await?;
        let mut open = BTreeSet::new();
        for row in rows {
            let (request, run, body): (i64, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            open.insert(request);
            // A request stays in the table until it is answered, and each poll finds it again.
            if !self.asked.contains(&request) {
                let request = request.cast_unsigned();
                self.assign(Assignment::Tell { request, run, body });
            }
        }
        // Replaced, so that answered requests leave the set.
        self.asked = open;
        Ok(())
    }

    /// Claims up to `most` runs and returns the number of claimed runs.
    async fn claim_next(&mut self, most: usize) -> Result<usize, Fault> {
        // At most `AT_ONCE`, so the conversion cannot fail.
        let most = i32::try_from(most).unwrap_or(1);
        let sql = "SELECT claim, run FROM pirn.claim_next($1, $2, $3)";
        let asked = Instant::now();
        let rows = self
            .on()?
            .query(sql, &[&self.held.worker, &self.held.seconds, &most])
            .await?;
        let count = rows.len();
        for row in rows {
            let (claim, run): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            if self.held.claim_of(&run).is_some() {
                // The run is claimed again while this process has not released its earlier, expired claim.
                if self.held.lose(&run) {
                    self.assign(Assignment::Lost(run));
                }
                self.give_back(&claim).await?;
                continue;
            }
            // Before the assignment, because the engine may use the claim at once.
            self.held.put(&run, claim, asked);
            self.assign(Assignment::Run(run));
        }
        Ok(count)
    }

    async fn give_back(&self, claim: &str) -> Result<(), Fault> {
        // After a second, so that the engine has released the expired claim when the run is offered again.
        let sql = "SELECT pirn.release($1::text::uuid, $2, 1)";
        self.on()?.query(sql, &[&claim, &self.held.worker]).await?;
        Ok(())
    }

    async fn turns(&mut self) -> Result<(), Fault> {
        let waiting: Vec<(String, String)> = {
            let mut state = self.held.state();
            // The receiver was dropped: the caller does not wait.
            state
                .turns
                .retain(|turn| turn.answer.as_ref().is_some_and(|answer| !answer.is_canceled()));
            let turns = state.turns.iter();
            turns.map(|turn| (turn.session.clone(), turn.run.clone())).collect()
        };
        for (session, run) in waiting {
            let sql = "SELECT pirn.take_turn($1, $2)";
            let rows = self.on()?.query(sql, &[&session, &run]).await?;
            let Some(row) = rows.first() else { continue };
            if row.try_get(0)? {
                let mut state = self.held.state();
                // A run that was resumed may wait twice, and has one turn.
                for turn in state.turns.iter_mut().filter(|turn| turn.run == run) {
                    answer(&mut turn.answer, Ok(()));
                }
                state.turns.retain(|turn| turn.run != run);
            }
        }
        Ok(())
    }

    async fn ends(&mut self) -> Result<(), Fault> {
        let waiting: Vec<String> = {
            let mut state = self.held.state();
            // The receiver was dropped: the caller does not wait.
            let waits = |end: &End| end.answer.as_ref().is_some_and(|answer| !answer.is_canceled());
            state.ends.retain(waits);
            state.ends.iter().map(|end| end.run.clone()).collect()
        };
        let sql = "SELECT id FROM pirn.runs WHERE id = ANY($1) AND status < 4 AND NOT is_hidden";
        let rows = self.on()?.query(sql, &[&waiting]).await?;
        let live: Result<BTreeSet<String>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        // Before the lock is taken, so that an error leaves the waiters for the next poll.
        let live = live?;
        let mut state = self.held.state();
        for end in &mut state.ends {
            // The query does not cover waiters that were added since.
            if waiting.contains(&end.run) && !live.contains(&end.run) {
                answer(&mut end.answer, Ok(()));
            }
        }
        state.ends.retain(|end| end.answer.is_some());
        Ok(())
    }

    async fn tells(&mut self) -> Result<(), Fault> {
        let waiting: Vec<i64> = self.held.state().tells.iter().map(|tell| tell.request).collect();
        // A request to a run without an owner is deleted in the statement that reads the answers, so that no late answer is
        // lost. The owner of an ended run has up to 30 s to answer: the request may have ended the run. The claim is not checked
        // by a function: that would see a later snapshot than the statement.
        let sql = "DELETE FROM pirn.requests q USING pirn.runs r WHERE q.run = r.key AND q.id = ANY($1) \
            AND (q.answer IS NOT NULL OR NOT EXISTS (SELECT FROM absurd.r_pirn a WHERE a.task_id = r.task \
                AND a.state = 'running' AND a.claim_expires_at > absurd.current_time()) \
              AND (r.status < 4 OR q.asked_at < clock_timestamp() - interval '30 seconds')) RETURNING q.id, q.answer";
        let rows = self.on()?.query(sql, &[&waiting]).await?;
        let mut answers = BTreeMap::new();
        for row in rows {
            let (request, answer): (i64, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
            answers.insert(request, answer);
        }
        let mut state = self.held.state();
        for tell in &mut state.tells {
            if let Some(told) = answers.remove(&tell.request) {
                answer(&mut tell.answer, Ok(told));
            }
        }
        state.tells.retain(|tell| tell.answer.is_some());
        Ok(())
    }
}

/// Commands on claims.
impl LocalClaims {
    pub(crate) async fn claim(&self, on: &Connection, run: &str) -> Answer<()> {
        // `claim_next` or the run's first commit has claimed it already.
        if self.claim_of(run).is_some() {
            return Ok(Ok(()));
        }
        let sql = "SELECT claim, code, name FROM pirn.claim($1, $2, $3)";
        let asked = Instant::now();
        let rows = on.query(sql, &[&run, &self.worker, &self.seconds]).await?;
        let row = rows.first().ok_or_else(|| Fault::Failed("no answer".to_owned()))?;
        let (claim, code): (Option<String>, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(claim) = claim {
            self.put(run, claim, asked);
            self.wake.notify_one();
            return Ok(Ok(()));
        }
        let run = run.to_owned();
        match code.as_deref() {
            Some("HELD") => {
                let by: Option<String> = row.try_get(2)?;
                if by.as_ref() == Some(&self.worker) {
                    // This process claimed the run, and lost the answer with a connection: that claim must expire first.
                    tracing::info!(
                        run_id = run,
                        "this worker claimed the run on a lost connection: it is claimed again when that claim expires"
                    );
                }
                let by = by.unwrap_or_default();
                Ok(Err(StoreError::RunHeld { run, by }))
            }
            Some("NO_SUCH_RUN") => Ok(Err(StoreError::NoSuchRun { run })),
            // An ended run is not written again, so it needs no claim.
            Some(_) | None => Ok(Ok(())),
        }
    }

    /// Checks that a claim is valid, by extending it.
    pub(crate) async fn verify(&self, on: &Connection, run: &str) -> Answer<()> {
        // A run without a claim has ended or was released, so there is nothing to check.
        let Some(claim) = self.claim_of(run) else {
            return Ok(Ok(()));
        };
        let sql = "SELECT is_lost FROM pirn.extend(ARRAY[$1::text::uuid], $2, $3)";
        let asked = Instant::now();
        let rows = on.query(sql, &[&claim, &self.worker, &self.seconds]).await?;
        match rows.first().map(|row| row.try_get::<_, bool>(0)).transpose()? {
            // `extend` returns only claims that it did not extend.
            None => {
                self.extended(run, &claim, asked);
                Ok(Ok(()))
            }
            Some(true) => Ok(Err(StoreError::RunLost { run: run.to_owned() })),
            // A transaction holds the row, such as a commit of this run.
            Some(false) => Err(Fault::Again("the claim is in use".to_owned())),
        }
    }

    pub(crate) async fn release(&self, on: &Connection, run: &str, after_ms: u64) -> Answer<()> {
        if let Some(claim) = self.claim_of(run) {
            let seconds = after_ms as f64 / 1_000.0;
            let sql = if after_ms == 0 {
                "SELECT pirn.release($1::text::uuid, $2, $3)"
            } else {
                // For a run that makes no progress: the delay doubles with each call, so that no process tries it without a pause.
                "SELECT pirn.put_off($1::text::uuid, $2, $3)"
            };
            on.query(sql, &[&claim, &self.worker, &seconds]).await?;
            // After the server has released it: a retry after a lost connection still needs the claim.
            self.forget(run);
        }
        Ok(Ok(()))
    }

    /// Stores a request to a run that has an owner; none if the run has no owner.
    pub(crate) async fn ask(on: &Connection, run: &str, body: &str) -> Answer<Option<i64>> {
        let sql = "WITH asked AS (INSERT INTO pirn.requests(run, body) SELECT key, $2 FROM pirn.runs \
            WHERE id = $1 AND pirn.claimant(task) IS NOT NULL RETURNING id) \
            SELECT id FROM asked, pg_notify('pirn', 'request')";
        let rows = on.query(sql, &[&run, &body]).await?;
        Ok(Ok(rows.first().map(|row| row.try_get(0)).transpose()?))
    }

    /// Returns the name of the process that owns a run.
    pub(crate) async fn owner(on: &Connection, run: &str) -> Answer<Option<String>> {
        // Not by pirn.claimant, which locks the row of the claim.
        let sql = "SELECT a.claimed_by FROM pirn.runs r JOIN absurd.r_pirn a ON a.task_id = r.task AND a.state = 'running' \
            AND a.claim_expires_at > absurd.current_time() WHERE r.id = $1 LIMIT 1";
        let rows = on.query(sql, &[&run]).await?;
        Ok(Ok(rows.first().map(|row| row.try_get(0)).transpose()?))
    }

    pub(crate) async fn answer(on: &Connection, request: u64, answer: &str) -> Answer<()> {
        let sql = "UPDATE pirn.requests SET answer = $2 WHERE id = $1";
        on.query(sql, &[&request.cast_signed(), &answer]).await?;
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_valid_for_most_of_its_duration_after_acquisition_or_extension() {
        let held = LocalClaims::new("writer".to_owned(), "worker".to_owned(), 100);
        let ago = |seconds| {
            Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .expect("up for long")
        };
        held.put("r", "claim".to_owned(), ago(70));
        assert!(held.is_surely_valid("r") && held.is_surely_valid("nobody's"));
        held.put("r", "claim".to_owned(), ago(80));
        assert!(!held.is_surely_valid("r"));
        held.extended("r", "an earlier claim", ago(1));
        assert!(!held.is_surely_valid("r"));
        held.extended("r", "claim", ago(1));
        assert!(held.is_surely_valid("r"));
        assert!(held.lose("r") && !held.is_surely_valid("r"));
    }
}
