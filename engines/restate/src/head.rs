//! State of a run except its records: status, claim and counters. `Head` decides; the run object executes.

use pirn_store::{Base, ContentHash, MAX_FORKS, Run};
use serde::{Deserialize, Serialize};

use crate::wire::{CallKey, CommitCall, ForkReply, KeptBase, NotClaimed, Refusal, StartCall, Ticket, status_of};

/// Limits below which a claim is answered with all of the run: number of records and of content names, and bytes.
const LITTLE_STEPS: u64 = 64;
const LITTLE_BYTES: u64 = 32 << 10;

/// Head of a run. Lists of runs are sorted and filtered by the first two fields, as JSON text: their order must not change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) place: String,
    pub(crate) status: usize,
    /// Removed, but still the base of other runs.
    pub(crate) is_hidden: bool,
    pub(crate) id: String,
    pub(crate) workflow: String,
    pub(crate) definition: String,
    /// Contents of the first commit.
    pub(crate) contents: Vec<String>,
    /// Number of contents named by later commits.
    pub(crate) names: u64,
    pub(crate) semantics: u32,
    pub(crate) session: Option<String>,
    pub(crate) base: Option<KeptBase>,
    /// Length of the chain of base runs.
    pub(crate) ancestors: usize,
    /// Number of runs forked from this run.
    pub(crate) forks: u64,
    pub(crate) started_at: u64,
    pub(crate) updated_at: u64,
    pub(crate) steps: u64,
    /// Size of the run's records, without those of its base.
    pub(crate) bytes: u64,
    pub(crate) snapshot_bytes: u64,
    /// Number of the last claim. `carrier` is the process that holds it.
    pub(crate) epoch: u64,
    pub(crate) carrier: Option<String>,
    /// Key of the last commit made with a claim.
    pub(crate) last: Option<CallKey>,
    /// Name under which the definition and the contents of the first commit are named; none: that of the run.
    pub(crate) namer: Option<String>,
}

/// Returns the sort key of a run as text: start time, then id.
pub(crate) fn place(started_at: u64, id: &str) -> String {
    use std::fmt::Write;
    // Padded and in hexadecimal, so that the order of the text is that of the times and of the ids' bytes.
    let mut place = format!("{started_at:020}/");
    for byte in id.bytes() {
        // Writing to a `String` cannot fail.
        let _ = write!(place, "{byte:02x}");
    }
    place
}

impl Head {
    /// Creates the head of a new run.
    pub(crate) fn begun(id: &str, start: &StartCall, ancestors: usize) -> Self {
        Self {
            place: place(start.started_at, id),
            // `commit` applies the status of the same call afterwards, in `take`.
            status: 0,
            is_hidden: false,
            id: id.to_owned(),
            workflow: start.workflow.clone(),
            definition: start.definition.clone(),
            contents: start.contents.clone(),
            names: 0,
            semantics: start.semantics,
            session: start.session.clone(),
            base: start.base.clone(),
            ancestors,
            forks: 0,
            started_at: start.started_at,
            updated_at: start.started_at,
            // Steps of the base count, but their records stay with it.
            steps: start.base.as_ref().map_or(0, |base| base.step),
            bytes: 0,
            snapshot_bytes: 0,
            // The start itself is the first claim.
            epoch: u64::from(start.carrier.is_some()),
            carrier: start.carrier.clone(),
            last: None,
            namer: start.namer.clone(),
        }
    }

    /// Returns the named contents of the first commit.
    pub(crate) fn begun_contents(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.definition).chain(&self.contents)
    }

    pub(crate) fn is_final(&self) -> bool {
        status_of(self.status).is_final()
    }

    /// Returns the current claim.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.carrier.as_ref().map(|process| Ticket {
            process: process.clone(),
            epoch: self.epoch,
        })
    }

    /// Claims the run for a process and returns the new epoch.
    pub(crate) fn claim(&mut self, process: &str) -> Result<u64, NotClaimed> {
        if self.is_hidden {
            return Err(NotClaimed::NoSuchRun);
        }
        if self.is_final() {
            return Err(NotClaimed::Ended);
        }
        // A claim ends by `expire` or `release`, and never by a comparison of times: handlers read no clock.
        if let Some(carrier) = &self.carrier {
            return Err(NotClaimed::Held(carrier.clone()));
        }
        // A new number for each claim, so that late calls with an earlier claim are refused.
        self.epoch += 1;
        self.carrier = Some(process.to_owned());
        Ok(self.epoch)
    }

    /// True if the run is small enough to be sent whole with a claim.
    pub(crate) fn is_little(&self) -> bool {
        // A fork is left out, because a part of its records is stored with its base.
        self.base.is_none() && self.steps <= LITTLE_STEPS && self.bytes <= LITTLE_BYTES && self.names <= LITTLE_STEPS
    }

    /// True for a commit with a claim that has taken effect already. Commits are sent again when their answer was lost; a copy may
    /// also be delivered late, when no caller waits for it.
    pub(crate) fn has_made(&self, call: &CommitCall) -> bool {
        let same = self.last.as_ref().filter(|last| last.writer == call.key.writer);
        // Numbers of a writer increase, and its commits of one run are sent one after the other.
        call.ticket.is_some() && same.is_some_and(|last| call.key.number <= last.number)
    }

    /// Checks the claim and the preceding step of a commit.
    pub(crate) fn admits(&self, call: &CommitCall) -> Result<(), Refusal> {
        match (&call.ticket, self.ticket()) {
            (Some(given), Some(held)) if *given == held => {}
            // The claim was replaced, perhaps by a later claim of the same process.
            (Some(_), _) => return Err(Refusal::Lost),
            // An input for a run without an owner came too late: the owner must receive it.
            (None, Some(held)) => return Err(Refusal::Held(held.process)),
            (None, None) => {}
        }
        if call.follows != self.steps {
            return Err(self.moved(call.follows));
        }
        Ok(())
    }

    /// Checks that the snapshot of a commit is of a step that exists after the commit.
    pub(crate) fn admits_snapshot(&self, call: &CommitCall) -> Result<(), Refusal> {
        // The snapshot may be of a step of this commit.
        let steps = self.steps + call.records.len() as u64;
        match &call.snapshot {
            Some(snapshot) if snapshot.step > steps => Err(Refusal::Moved {
                run: self.id.clone(),
                expected: snapshot.step,
                found: steps,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn moved(&self, expected: u64) -> Refusal {
        Refusal::Moved {
            run: self.id.clone(),
            expected,
            found: self.steps,
        }
    }

    /// Forks a run from this one at a step.
    pub(crate) fn fork(&mut self, step: u64) -> ForkReply {
        if step > self.steps {
            return ForkReply::Refused(self.moved(step));
        }
        // Stored as a number, because counting would call every ancestor.
        if self.ancestors + 1 >= MAX_FORKS {
            return ForkReply::Refused(Refusal::TooManyForks);
        }
        // Counted here, so that a removal knows without a query whether the run is a base.
        self.forks += 1;
        ForkReply::Done {
            ancestors: self.ancestors + 1,
        }
    }

    /// Applies a commit to the head.
    pub(crate) fn take(&mut self, call: &CommitCall) {
        if let Some(last) = call.records.last() {
            self.updated_at = last.at;
        }
        self.steps += call.records.len() as u64;
        self.bytes += call.records.iter().map(|record| record.body.len() as u64).sum::<u64>();
        self.names += call.names.len() as u64;
        if let Some(status) = call.status {
            self.status = status;
        }
        // Without a claim, the server's idempotency key detects a repeated commit.
        if call.ticket.is_some() {
            self.last = Some(call.key.clone());
        }
        if let Some(snapshot) = &call.snapshot {
            self.snapshot_bytes = snapshot.body.len() as u64;
        }
    }

    /// Returns the hashes of all named contents, sorted: those of the start and `more`.
    pub(crate) fn named(&self, more: Vec<String>) -> Vec<String> {
        let begun = self.begun_contents().cloned();
        let mut named: Vec<String> = begun.chain(more).collect();
        named.sort();
        // `unname` would be called twice for a content that the start and a later commit name.
        named.dedup();
        named
    }

    /// Converts the head to a run that also names the contents `more`; none if a hash is malformed.
    pub(crate) fn run(self, more: Vec<String>) -> Option<Run> {
        let contents = self.contents.into_iter().chain(more);
        let contents: Option<Vec<ContentHash>> = contents.map(|hash| ContentHash::parse(&hash)).collect();
        Some(Run {
            definition: ContentHash::parse(&self.definition)?,
            contents: contents?,
            id: self.id,
            workflow: self.workflow,
            semantics: self.semantics,
            session: self.session,
            base: self.base.map(|base| Base {
                run: base.run,
                step: base.step,
            }),
            status: status_of(self.status),
            started_at: self.started_at,
            updated_at: self.updated_at,
            steps: self.steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use pirn_store::{Commit, ContentHash, NewRun, Record, RunStatus};

    use super::*;
    use crate::wire::status_number;

    fn call(number: u64, commit: &Commit, ticket: Option<&Ticket>) -> CommitCall {
        let key = CallKey {
            writer: "writer".to_owned(),
            number,
        };
        let mut call = CommitCall::of(commit, key, "process", |_| false);
        call.ticket = ticket.cloned();
        call
    }

    fn claimed() -> (Head, Ticket) {
        let new = NewRun::new("flow", ContentHash::of("{}"), 1);
        let begins = call(0, &Commit::start("run", new), None);
        let mut head = Head::begun("run", begins.start.as_ref().expect("it begins"), 0);
        head.take(&begins);
        assert_eq!(head.claim("process"), Ok(1));
        let ticket = head.ticket().expect("it is claimed");
        (head, ticket)
    }

    #[test]
    fn a_repeated_or_late_commit_of_a_claim_takes_effect_once() {
        let (mut head, ticket) = claimed();
        let step = call(1, &Commit::after("run", 0).record(Record::new(2, "{}")), Some(&ticket));
        let waits = RunStatus::ALL
            .into_iter()
            .find(|status| !status.is_final() && status_number(*status) > 0);
        let waits = call(
            2,
            &Commit::after("run", 1).status(waits.expect("runs wait")),
            Some(&ticket),
        );
        let goes_on = call(3, &Commit::after("run", 1).status(RunStatus::Unfinished), Some(&ticket));
        for call in [&step, &waits, &goes_on] {
            assert!(!head.has_made(call));
            assert_eq!(head.admits(call), Ok(()));
            head.take(call);
            assert!(head.has_made(call));
        }
        // A late copy of `waits` must not reset the status: the run would wait forever.
        assert!(head.has_made(&waits) && head.has_made(&step));
        let mut other = call(3, &Commit::after("run", 1), Some(&ticket));
        other.key.writer = "other".to_owned();
        assert!(!head.has_made(&other));
        let unclaimed = call(1, &Commit::after("run", 1), None);
        assert!(!head.has_made(&unclaimed), "the server remembers those itself");
    }

    #[test]
    fn a_run_is_claimed_by_one_process_until_released_or_ended() {
        let (mut head, ticket) = claimed();
        assert_eq!(head.claim("other"), Err(NotClaimed::Held("process".to_owned())));
        head.carrier = None;
        assert_eq!(head.claim("other"), Ok(2));
        let late = call(1, &Commit::after("run", 0), Some(&ticket));
        assert_eq!(head.admits(&late), Err(Refusal::Lost));
        head.carrier = None;
        head.status = status_number(RunStatus::Completed);
        assert_eq!(head.claim("process"), Err(NotClaimed::Ended));
        head.is_hidden = true;
        assert_eq!(head.claim("process"), Err(NotClaimed::NoSuchRun));
    }
}
