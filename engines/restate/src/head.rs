//! The state of a run beside its records: who may write, and where it stands. It decides, and the object carries out.

use pirn_store::{Base, ContentHash, MAX_FORKS, Run};
use serde::{Deserialize, Serialize};

use crate::wire::{CallKey, CommitCall, ForkReply, KeptBase, NotClaimed, Refusal, StartCall, Ticket, status_of};

/// Records, and names of contents, that whoever claims a run is given with it, and their bytes.
const LITTLE_STEPS: u64 = 64;
const LITTLE_BYTES: u64 = 32 << 10;

/// See the module. The first two fields are what lists of runs are sorted and filtered by, as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) place: String,
    pub(crate) status: usize,
    /// Removed, and still the base of others.
    pub(crate) is_hidden: bool,
    pub(crate) id: String,
    pub(crate) workflow: String,
    pub(crate) definition: String,
    /// Those that it started from.
    pub(crate) contents: Vec<String>,
    /// The number of those that it names beside them.
    pub(crate) names: u64,
    pub(crate) semantics: u32,
    pub(crate) session: Option<String>,
    pub(crate) base: Option<KeptBase>,
    /// Runs in the line of those that it was forked from.
    pub(crate) ancestors: usize,
    /// Runs that were forked from it.
    pub(crate) forks: u64,
    pub(crate) started_at: u64,
    pub(crate) updated_at: u64,
    pub(crate) steps: u64,
    /// Of its own records.
    pub(crate) bytes: u64,
    pub(crate) snapshot_bytes: u64,
    /// The number of its last claim, and the process that has it.
    pub(crate) epoch: u64,
    pub(crate) carrier: Option<String>,
    /// The key of the last commit by a claim.
    pub(crate) last: Option<CallKey>,
}

/// The order of runs as text: by the time at which they began, and by their ids.
pub(crate) fn place(started_at: u64, id: &str) -> String {
    use std::fmt::Write;
    let mut place = format!("{started_at:020}/");
    for byte in id.bytes() {
        // A text takes all that is written.
        let _ = write!(place, "{byte:02x}");
    }
    place
}

impl Head {
    /// A run as it begins.
    pub(crate) fn begun(id: &str, start: &StartCall, ancestors: usize) -> Self {
        Self {
            place: place(start.started_at, id),
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
            steps: start.base.as_ref().map_or(0, |base| base.step),
            bytes: 0,
            snapshot_bytes: 0,
            epoch: u64::from(start.carrier.is_some()),
            carrier: start.carrier.clone(),
            last: None,
        }
    }

    pub(crate) fn is_final(&self) -> bool {
        status_of(self.status).is_final()
    }

    /// The claim on it.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.carrier.as_ref().map(|process| Ticket {
            process: process.clone(),
            epoch: self.epoch,
        })
    }

    /// A process claims it. Its epoch then, or why it has none.
    pub(crate) fn claim(&mut self, process: &str) -> Result<u64, NotClaimed> {
        if self.is_hidden {
            return Err(NotClaimed::NoSuchRun);
        }
        if self.is_final() {
            return Err(NotClaimed::Ended);
        }
        if let Some(carrier) = &self.carrier {
            return Err(NotClaimed::Held(carrier.clone()));
        }
        self.epoch += 1;
        self.carrier = Some(process.to_owned());
        Ok(self.epoch)
    }

    /// So little has been kept of it that whoever claims it is given all.
    pub(crate) fn is_little(&self) -> bool {
        self.base.is_none() && self.steps <= LITTLE_STEPS && self.bytes <= LITTLE_BYTES && self.names <= LITTLE_STEPS
    }

    /// True for a commit by a claim that has been made, and comes again because its answer was lost, or late, when none waits for it.
    pub(crate) fn has_made(&self, call: &CommitCall) -> bool {
        let same = self.last.as_ref().filter(|last| last.writer == call.key.writer);
        call.ticket.is_some() && same.is_some_and(|last| call.key.number <= last.number)
    }

    /// A commit that goes on from one of its steps may be made.
    pub(crate) fn admits(&self, call: &CommitCall) -> Result<(), Refusal> {
        match (&call.ticket, self.ticket()) {
            (Some(given), Some(held)) if *given == held => {}
            (Some(_), _) => return Err(Refusal::Lost),
            (None, Some(held)) => return Err(Refusal::Held(held.process)),
            (None, None) => {}
        }
        if call.follows != self.steps {
            return Err(self.moved(call.follows));
        }
        Ok(())
    }

    /// The snapshot of a commit is of one of the steps that there are then.
    pub(crate) fn admits_snapshot(&self, call: &CommitCall) -> Result<(), Refusal> {
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

    /// A run is forked from it at this step.
    pub(crate) fn fork(&mut self, step: u64) -> ForkReply {
        if step > self.steps {
            return ForkReply::Refused(self.moved(step));
        }
        if self.ancestors + 1 >= MAX_FORKS {
            return ForkReply::Refused(Refusal::TooManyForks);
        }
        self.forks += 1;
        ForkReply::Done {
            ancestors: self.ancestors + 1,
        }
    }

    /// Takes what a commit changes that is not a key of its own.
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
        if call.ticket.is_some() {
            self.last = Some(call.key.clone());
        }
        if let Some(snapshot) = &call.snapshot {
            self.snapshot_bytes = snapshot.body.len() as u64;
        }
    }

    /// The contents that it names, `more` beside those that it began with.
    pub(crate) fn named(&self, more: Vec<String>) -> Vec<String> {
        let begun = std::iter::once(&self.definition).chain(&self.contents).cloned();
        let mut named: Vec<String> = begun.chain(more).collect();
        named.sort();
        named.dedup();
        named
    }

    /// The run as its store tells of it, with the contents that it has come to name; none where a hash is none.
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
    fn a_commit_of_a_claim_that_comes_again_or_late_is_made_once() {
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
        // It would have the run wait for ever.
        assert!(head.has_made(&waits) && head.has_made(&step));
        let mut other = call(3, &Commit::after("run", 1), Some(&ticket));
        other.key.writer = "other".to_owned();
        assert!(!head.has_made(&other));
        let unclaimed = call(1, &Commit::after("run", 1), None);
        assert!(!head.has_made(&unclaimed), "the server remembers those itself");
    }

    #[test]
    fn a_run_is_claimed_by_one_process_until_it_is_given_up_or_ends() {
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
