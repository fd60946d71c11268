//! Commit command: its SQL parameters and its answer.

use std::sync::Arc;
use std::time::Instant;

use futures::channel::oneshot;
use pirn_store::command_order::Lane;
use pirn_store::{Commit, Content, ContentHash, MAX_FORKS, Precondition, RunStatus, StoreError, TimerChange};
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::claims::LocalClaims;
use crate::connection::connect::Connection;
use crate::connection::fault::Fault;
use crate::read::status_code;
use crate::reply::answer;

pub(crate) const SQL: &str = "SELECT code, name, expected, found_at, steps, new_claim FROM pirn.commit($1::text::uuid, $2, \
    $3::text::uuid, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

pub(crate) const FAULTY: &str = "unexpected answer of the server";

/// Commit that waits for its answer.
pub(crate) struct PendingCommit {
    commit: Commit,
    /// Number of the commit; increases with each commit of this store.
    number: i64,
    held: Arc<LocalClaims>,
    location: Arc<str>,
    /// Answer of the server, until it is sent to the caller.
    steps: Option<Result<u64, StoreError>>,
    given: Instant,
    /// Position among the commands of the run; none once the commit is done.
    pub(crate) lane: Option<Lane>,
    answer: Option<oneshot::Sender<Result<u64, StoreError>>>,
}

impl PendingCommit {
    pub(crate) fn new(
        commit: Commit,
        held: Arc<LocalClaims>,
        location: Arc<str>,
        lane: Lane,
        answer: oneshot::Sender<Result<u64, StoreError>>,
    ) -> Self {
        Self {
            commit,
            // Given in the order of the calls. The server remembers the number, so that a repeated commit returns its first answer.
            number: held.next_number(),
            held,
            location,
            steps: None,
            // Earlier than the claim that the commit may create, so the local estimate of its expiry is conservative.
            given: Instant::now(),
            lane: Some(lane),
            answer: Some(answer),
        }
    }

    /// Sends the commit. A refusal is an answer, not an error.
    pub(crate) async fn send(&self, on: &Connection) -> Result<Row, Fault> {
        let commit = &self.commit;
        let claim = match commit.follows {
            // The first commit creates the claim.
            Precondition::Start(_) => None,
            Precondition::Step(_) => self.held.claim_of(&commit.run),
        };
        let records = &commit.records;
        // Arrays, so that one call transfers any number of records in one round trip.
        let ats: Vec<i64> = records.iter().map(|record| record.at.cast_signed()).collect();
        let effects: Vec<Option<&str>> = records.iter().map(|record| record.effect.as_deref()).collect();
        let bodies: Vec<&str> = records.iter().map(|record| &*record.body).collect();
        let hashes: Vec<ContentHash> = commit.contents.iter().map(Content::hash).collect();
        let hashes: Vec<&[u8]> = hashes.iter().map(bytes).collect();
        let texts: Vec<&str> = commit.contents.iter().map(|content| &**content.text()).collect();
        let follows: Vec<Option<ContentHash>> = commit.contents.iter().map(Content::follows).collect();
        let follows: Vec<Option<&[u8]>> = follows.iter().map(|hash| hash.as_ref().map(bytes)).collect();
        let names: Vec<&[u8]> = commit.names.iter().map(bytes).collect();
        let session = commit.session.as_ref();
        let session_contents: Option<Vec<&[u8]>> = session.map(|write| write.contents.iter().map(bytes).collect());
        let rows = on
            .query(
                SQL,
                &[
                    &self.held.writer,
                    &self.number,
                    &claim,
                    &self.held.worker,
                    &self.held.seconds,
                    &small(commit).to_string(),
                    &ats,
                    &effects,
                    &bodies,
                    &hashes,
                    &texts,
                    &follows,
                    &names,
                    &session.map(|write| &*write.body),
                    &session_contents,
                    &commit.snapshot.as_ref().map(|snapshot| &*snapshot.body),
                ],
            )
            .await?;
        rows.into_iter().next().ok_or_else(|| Fault::Failed(FAULTY.to_owned()))
    }

    /// Records the server's answer. Returns true if the commit took effect.
    pub(crate) fn answered(&mut self, row: &Row) -> bool {
        let steps = self.read(row).unwrap_or_else(|error| {
            Err(StoreError::Failed {
                file: Arc::clone(&self.location),
                run: Some(self.commit.run.clone()),
                why: error.to_string(),
            })
        });
        let is_kept = steps.is_ok();
        self.steps = Some(steps);
        is_kept
    }

    /// Sends the recorded answer to the caller.
    pub(crate) fn tell(&mut self) {
        if let Some(steps) = self.steps.take() {
            self.done(steps);
        }
    }

    /// Sends the answer after the lane is free, so that the caller finds the next command of the run not blocked.
    fn done(&mut self, steps: Result<u64, StoreError>) {
        self.lane = None;
        answer(&mut self.answer, steps);
    }

    fn read(&self, row: &Row) -> Result<Result<u64, StoreError>, tokio_postgres::Error> {
        let run = || self.commit.run.clone();
        let Some(code) = row.try_get::<_, Option<&str>>(0)? else {
            if let Some(claim) = row.try_get::<_, Option<String>>(5)? {
                // Before the answer is sent: the caller's next commit of the run needs the claim.
                self.held.put(&self.commit.run, claim, self.given);
            }
            // The server has completed the task, and an ended run has no claim.
            if self.commit.status.is_some_and(RunStatus::is_final) {
                self.held.forget(&self.commit.run);
            }
            return Ok(Ok(row.try_get::<_, i64>(4)?.cast_unsigned()));
        };
        let name: String = row.try_get::<_, Option<String>>(1)?.unwrap_or_default();
        let expected = row.try_get::<_, i64>(2)?.cast_unsigned();
        let found = row.try_get::<_, i64>(3)?.cast_unsigned();
        Ok(Err(match code {
            "RUN_EXISTS" => StoreError::RunExists { run: name },
            "NO_SUCH_RUN" => StoreError::NoSuchRun { run: name },
            "MOVED" => StoreError::Moved {
                run: name,
                expected,
                found,
            },
            "SESSION_MOVED" => StoreError::SessionMoved {
                session: name,
                expected,
                found,
            },
            "HELD" => StoreError::RunHeld { run: run(), by: name },
            "LOST" => {
                self.held.lose(&self.commit.run);
                StoreError::RunLost { run: run() }
            }
            "TOO_MANY_FORKS" => StoreError::too_many_forks(),
            // A name that is no hash comes from another version of the schema, and is reported as it is below.
            "NO_SUCH_CONTENT" if ContentHash::parse(&name).is_some() => StoreError::NoSuchContent {
                hash: ContentHash::parse(&name).unwrap_or_else(|| ContentHash::of("")),
            },
            other => StoreError::Failed {
                file: Arc::clone(&self.location),
                run: Some(run()),
                why: format!("refused: {other}"),
            },
        }))
    }

    pub(crate) fn fail(&mut self, error: StoreError) {
        let error = match error {
            // The connection has no information about the run of the command.
            StoreError::Failed { file, run: None, why } => StoreError::Failed {
                file,
                run: Some(self.commit.run.clone()),
                why,
            },
            error => error,
        };
        self.done(Err(error));
    }
}

fn bytes(hash: &ContentHash) -> &[u8] {
    hash.as_bytes()
}

/// Returns the small parts of a commit as one JSON parameter.
fn small(commit: &Commit) -> Value {
    // One JSON parameter instead of one for each optional field.
    let mut small = json!({"run": commit.run});
    match &commit.follows {
        Precondition::Step(step) => small["follows"] = json!(step.cast_signed()),
        Precondition::Start(new) => {
            let contents: Vec<String> = new.contents.iter().map(ToString::to_string).collect();
            small["start"] = json!({
                "workflow": new.workflow,
                "definition": new.definition.to_string(),
                "contents": contents,
                "semantics": new.semantics,
                "session": new.session,
                "baseRun": new.base.as_ref().map(|base| &base.run),
                "baseStep": new.base.as_ref().map(|base| base.step.cast_signed()),
                "startedAt": new.started_at.cast_signed(),
                "isCarried": new.is_carried,
                "maxForks": MAX_FORKS,
            });
        }
    }
    if let Some(status) = commit.status {
        small["status"] = json!(status_code(status));
    }
    if !commit.timers.is_empty() {
        let timers = commit.timers.iter().map(|change| match change {
            TimerChange::Set { due, effect } => json!({"set": true, "due": due, "effect": effect}),
            TimerChange::Clear { due, effect } => json!({"set": false, "due": due, "effect": effect}),
        });
        small["timers"] = timers.collect();
    }
    if let Some(session) = &commit.session {
        let follows = session.follows.cast_signed();
        small["session"] = json!({"id": session.id, "follows": follows, "at": session.at.cast_signed()});
    }
    if let Some(snapshot) = &commit.snapshot {
        small["snapshot"] = json!(snapshot.step.cast_signed());
    }
    small
}
