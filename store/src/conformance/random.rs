//! Random commands, compared with the store in memory.

use futures::executor::block_on;

use crate::commit::{Commit, NewRun, SessionWrite};
use crate::conformance::{Open, Property, definition, done, fork, record};
use crate::content::Content;
use crate::memory::MemoryStore;
use crate::run::{RunFilter, RunStatus};
use crate::store::Store;

pub(super) const PROPERTIES: &[Property] = &[Property {
    name: "random_commands_are_answered_like_the_memory_store",
    check: random,
}];

/// Command that changes a store.
#[derive(Clone, Debug)]
pub enum Step {
    /// Valid or invalid commit.
    Commit(Box<Commit>),
    /// [`Store::remove`]
    Remove(Vec<String>),
    /// [`Store::set_meta`]
    SetMeta(&'static str, Option<String>),
    /// [`Store::remove_session`]
    RemoveSession(&'static str),
}

impl Step {
    /// Executes the command and formats the answer.
    pub fn apply(&self, store: &dyn Store) -> String {
        match self.clone() {
            Self::Commit(commit) => format!("{:?}", block_on(store.commit(*commit))),
            Self::Remove(ids) => format!("{:?}", block_on(store.remove(ids, false)).map(|removed| removed.runs)),
            Self::SetMeta(name, value) => format!("{:?}", block_on(store.set_meta(name, value))),
            Self::RemoveSession(id) => format!("{:?}", block_on(store.remove_session(id))),
        }
    }
}

/// Generates commands from a seed: runs that start, continue, fork and end, and commands that are refused.
pub fn steps(seed: u64, count: usize) -> Vec<Step> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The state after the commands so far, so that most commands are valid.
    let known = MemoryStore::new();
    (0..count)
        .map(|_| {
            let step = dice.step(&known);
            step.apply(&known);
            step
        })
        .collect()
}

/// Formats everything that can be read from a store.
pub fn contents_of(store: &dyn Store) -> String {
    let runs = done(store.runs(RunFilter::default(), None, usize::MAX));
    let journals: Vec<_> = runs
        .iter()
        .map(|run| {
            (
                done(store.journal(&run.id, 0, usize::MAX)),
                done(store.snapshot(&run.id, u64::MAX)),
            )
        })
        .collect();
    let sessions = SESSIONS.map(|id| done(store.session(id)));
    let texts: Vec<_> = texts()
        .iter()
        .map(|text| block_on(store.contents(vec![text.hash()])).is_ok())
        .collect();
    let meta = NAMES.map(|name| done(store.meta(name)));
    format!(
        "{runs:#?}\n{journals:#?}\n{:?}\n{sessions:?}\n{texts:?}\n{meta:?}",
        done(store.timers(u64::MAX, usize::MAX))
    )
}

fn random(open: &Open) {
    let oracle = MemoryStore::new();
    let mut store = open();
    for (at, step) in steps(7, 400).iter().enumerate() {
        assert_eq!(step.apply(&*store), step.apply(&oracle), "step {at}: {step:?}");
        if at % 100 == 99 {
            assert_eq!(contents_of(&*store), contents_of(&oracle), "after step {at}");
            drop(store);
            store = open();
        }
    }
    assert_eq!(contents_of(&*store), contents_of(&oracle));
}

const SESSIONS: [&str; 2] = ["s", "t"];
const NAMES: [&str; 2] = ["m", "n"];

fn texts() -> Vec<Content> {
    let chunks = (0..4_usize).map(|number| Content::new(format!("chunk {number} {}", "y".repeat(number * 700))));
    std::iter::once(definition()).chain(chunks).collect()
}

struct Dice(u64);

impl Dice {
    /// Returns a number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides.max(1)
    }

    fn id(&mut self) -> String {
        format!("run-{}", self.roll(12))
    }

    fn steps_of(&mut self, known: &MemoryStore, id: &str) -> u64 {
        let steps = done(known.run(id)).map_or(0, |run| run.steps);
        // In one of ten cases an outdated step.
        if self.roll(10) == 0 {
            self.roll(steps + 3)
        } else {
            steps
        }
    }

    fn step(&mut self, known: &MemoryStore) -> Step {
        match self.roll(20) {
            0 => Step::Remove(vec![self.id(), self.id()]),
            1 => {
                let value = (self.roll(3) > 0).then(|| format!("value {}", self.roll(9)));
                Step::SetMeta(NAMES[self.roll(2) as usize], value)
            }
            2 if self.roll(3) == 0 => Step::RemoveSession(SESSIONS[self.roll(2) as usize]),
            3 => {
                let (id, base) = (self.id(), self.id());
                let steps = self.steps_of(known, &base);
                let at = self.roll(steps + 1);
                let commit = fork(&id, &base, at);
                Step::Commit(Box::new(self.more(commit, at, known)))
            }
            4..=6 => {
                let mut new = NewRun::new("flow", definition().hash(), self.roll(1_000));
                new.session = (self.roll(2) == 0).then(|| SESSIONS[0].to_owned());
                new.contents = self.named();
                let commit = Commit::start(self.id(), new).content(definition());
                Step::Commit(Box::new(self.more(commit, 0, known)))
            }
            _ => {
                let id = self.id();
                let steps = self.steps_of(known, &id);
                let commit = Commit::after(id, steps);
                Step::Commit(Box::new(self.more(commit, steps, known)))
            }
        }
    }

    fn named(&mut self) -> Vec<crate::ContentHash> {
        let texts = texts();
        (0..self.roll(3)).map(|_| texts[self.roll(5) as usize].hash()).collect()
    }

    fn more(&mut self, mut commit: Commit, mut steps: u64, known: &MemoryStore) -> Commit {
        for _ in 0..self.roll(5) {
            steps += 1;
            let mut record = record(self.roll(1_000));
            if self.roll(8) == 0 {
                record.body = "x".repeat(self.roll(9_000) as usize);
            }
            commit = commit.record(record);
        }
        for _ in 0..self.roll(3) {
            commit = commit.content(texts()[self.roll(5) as usize].clone());
        }
        match self.roll(12) {
            0 => commit = commit.status(RunStatus::ALL[self.roll(8) as usize]),
            6 => commit = commit.name(texts()[self.roll(5) as usize].clone()),
            7 => commit.names = self.named(),
            1 => commit = commit.timer(self.roll(5), format!("t{}", self.roll(3))),
            2 => commit = commit.clear_timer(self.roll(5), format!("t{}", self.roll(3))),
            3 => commit = commit.snapshot(self.roll(steps + 1), format!("snapshot {}", self.roll(99))),
            4 | 5 => {
                let id = SESSIONS[self.roll(2) as usize];
                let version = done(known.session(id)).map_or(0, |session| session.version);
                commit = commit.session(SessionWrite {
                    id: id.to_owned(),
                    follows: if self.roll(8) == 0 { self.roll(4) } else { version },
                    body: format!("{{\"roll\": {}}}", self.roll(99)),
                    contents: self.named(),
                    at: self.roll(1_000),
                });
            }
            _ => {}
        }
        commit
    }
}
