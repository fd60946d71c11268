//! Runs that live as long as the process, with the semantics of every other store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future;

use crate::commit::{Commit, Follows, NewRun, TimerChange};
use crate::content::ContentHash;
use crate::error::StoreError;
use crate::pending::Pending;
use crate::record::Record;
use crate::run::MAX_FORKS;
use crate::run::{Run, RunFilter, RunPlace, Session, Snapshot, Timer};
use crate::store::{Removed, Store};

/// A store in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    location: Arc<str>,
}

#[derive(Clone, Debug, Default)]
struct State {
    runs: BTreeMap<String, Kept>,
    contents: BTreeMap<ContentHash, Arc<str>>,
    timers: BTreeSet<Timer>,
    sessions: BTreeMap<String, Session>,
    meta: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct Kept {
    run: Run,
    /// Removed, and still the base of others.
    is_hidden: bool,
    /// Those after its base.
    records: Vec<Record>,
    snapshot: Option<Snapshot>,
}

impl Kept {
    /// The step before its first own record.
    fn base_step(&self) -> u64 {
        self.run.base.as_ref().map_or(0, |base| base.step)
    }

    fn names(&self) -> impl Iterator<Item = &ContentHash> {
        std::iter::once(&self.run.definition).chain(&self.run.contents)
    }

    fn bytes(&self) -> u64 {
        let records = self.records.iter().map(|record| record.body.len());
        let snapshot = self.snapshot.iter().map(|snapshot| snapshot.body.len());
        records.chain(snapshot).sum::<usize>() as u64
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            location: "memory".into(),
        }
    }

    fn with<T: Send + 'static>(&self, command: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Pending<T> {
        // No command panics halfway: each checks before it changes anything.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Box::pin(future::ready(command(&mut state)))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn location(&self) -> &Arc<str> {
        &self.location
    }

    fn commit(&self, commit: Commit) -> Pending<u64> {
        self.with(|state| state.commit(commit))
    }

    fn run(&self, id: &str) -> Pending<Option<Run>> {
        self.with(|state| Ok(state.visible(id).map(|kept| kept.run.clone())))
    }

    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        self.with(|state| {
            let shown = state.runs.values().filter(|kept| !kept.is_hidden).map(|kept| &kept.run);
            let is_later = |run: &&Run| {
                let order = after.as_ref().map(|after| run.place().cmp(after));
                order.is_none_or(|order| {
                    if filter.youngest_first {
                        order.is_lt()
                    } else {
                        order.is_gt()
                    }
                })
            };
            let mut runs: Vec<Run> = shown.filter(is_later).filter(|run| filter.has(run)).cloned().collect();
            runs.sort_by_cached_key(Run::place);
            if filter.youngest_first {
                runs.reverse();
            }
            runs.truncate(limit);
            Ok(runs)
        })
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        self.with(|state| {
            let kept = state.visible(id).ok_or_else(|| no_run(id))?;
            let (mut kept, mut last) = (kept, kept.run.steps);
            let mut parts = Vec::new();
            loop {
                let base = kept.base_step();
                let own = &kept.records[..last.saturating_sub(base) as usize];
                parts.push(&own[(after.saturating_sub(base) as usize).min(own.len())..]);
                match &kept.run.base {
                    Some(base) => {
                        last = last.min(base.step);
                        kept = state.runs.get(&base.run).ok_or_else(|| no_run(&base.run))?;
                    }
                    None => break,
                }
            }
            Ok(parts.into_iter().rev().flatten().take(limit).cloned().collect())
        })
    }

    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        self.with(|state| {
            let find = |hash| {
                state
                    .contents
                    .get(&hash)
                    .cloned()
                    .ok_or(StoreError::NoSuchContent { hash })
            };
            hashes.into_iter().map(find).collect()
        })
    }

    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        self.with(|state| {
            let kept = state.visible(id).ok_or_else(|| no_run(id))?;
            Ok(kept.snapshot.clone().filter(|snapshot| snapshot.step <= at_most))
        })
    }

    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        self.with(|state| {
            Ok(state
                .timers
                .iter()
                .take_while(|timer| timer.due <= until)
                .take(limit)
                .cloned()
                .collect())
        })
    }

    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        self.with(|state| {
            let sessions = state.sessions.values();
            let later = sessions.filter(|session| after.as_ref().is_none_or(|after| session.id > *after));
            Ok(later.take(limit).cloned().collect())
        })
    }

    fn session(&self, id: &str) -> Pending<Option<Session>> {
        self.with(|state| Ok(state.sessions.get(id).cloned()))
    }

    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        self.with(|state| {
            match value {
                Some(value) => state.meta.insert(name.to_owned(), value),
                None => state.meta.remove(name),
            };
            Ok(())
        })
    }

    fn meta(&self, name: &str) -> Pending<Option<String>> {
        self.with(|state| Ok(state.meta.get(name).cloned()))
    }

    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        self.with(|state| {
            if dry_run {
                return Ok(state.clone().remove(&ids));
            }
            Ok(state.remove(&ids))
        })
    }

    fn remove_session(&self, id: &str) -> Pending<bool> {
        self.with(|state| {
            let Some(session) = state.sessions.remove(id) else {
                return Ok(false);
            };
            state.collect(session.contents.into_iter().collect());
            Ok(true)
        })
    }
}

impl State {
    fn visible(&self, id: &str) -> Option<&Kept> {
        self.runs.get(id).filter(|kept| !kept.is_hidden)
    }

    fn commit(&mut self, commit: Commit) -> Result<u64, StoreError> {
        commit.check()?;
        let before = match &commit.follows {
            Follows::Start(new) => Some(self.start(&commit.run, new)?),
            Follows::Step(step) => {
                let kept = self.visible(&commit.run).ok_or_else(|| no_run(&commit.run))?;
                moved(&commit.run, *step, kept.run.steps, *step == kept.run.steps)?;
                None
            }
        };
        let named = before.iter().flat_map(Kept::names).chain(&commit.names);
        self.know(&commit, named)?;
        let session = commit
            .session
            .as_ref()
            .map(|write| self.session_after(&commit, write))
            .transpose()?;
        let mut kept = before.unwrap_or_else(|| self.runs[&commit.run].clone());
        kept.run.steps += commit.records.len() as u64;
        if let Some(snapshot) = commit.snapshot {
            moved(
                &commit.run,
                snapshot.step,
                kept.run.steps,
                snapshot.step <= kept.run.steps,
            )?;
            kept.snapshot = Some(snapshot);
        }
        // From here on nothing is refused.
        if let Some(last) = commit.records.last() {
            kept.run.updated_at = last.at;
        }
        if let Some(status) = commit.status {
            kept.run.status = status;
        }
        kept.records.extend(commit.records);
        kept.run.contents.extend(&commit.names);
        let steps = kept.run.steps;
        self.contents.extend(
            commit
                .contents
                .into_iter()
                .map(|content| (content.hash(), content.text().clone())),
        );
        for change in commit.timers {
            let run = commit.run.clone();
            match change {
                TimerChange::Set { due, effect } => self.timers.insert(Timer { due, run, effect }),
                TimerChange::Clear { due, effect } => self.timers.remove(&Timer { due, run, effect }),
            };
        }
        if let Some(session) = session {
            self.sessions.insert(session.id.clone(), session);
        }
        self.runs.insert(commit.run, kept);
        Ok(steps)
    }

    fn start(&self, id: &str, new: &NewRun) -> Result<Kept, StoreError> {
        if self.runs.contains_key(id) {
            return Err(StoreError::RunExists { run: id.to_owned() });
        }
        let mut steps = 0;
        if let Some(base) = &new.base {
            let kept = self.visible(&base.run).ok_or_else(|| no_run(&base.run))?;
            moved(&base.run, base.step, kept.run.steps, base.step <= kept.run.steps)?;
            let ancestors = std::iter::successors(Some(kept), |kept| self.runs.get(&kept.run.base.as_ref()?.run));
            if ancestors.count() >= MAX_FORKS {
                return Err(StoreError::too_many_forks());
            }
            steps = base.step;
        }
        Ok(Kept {
            run: new.begun(id, steps),
            is_hidden: false,
            records: Vec::new(),
            snapshot: None,
        })
    }

    fn know<'a>(&self, commit: &Commit, mut hashes: impl Iterator<Item = &'a ContentHash>) -> Result<(), StoreError> {
        let is_known =
            |hash| self.contents.contains_key(hash) || commit.contents.iter().any(|content| content.hash() == *hash);
        hashes
            .find(|hash| !is_known(hash))
            .map_or(Ok(()), |hash| Err(StoreError::NoSuchContent { hash: *hash }))
    }

    fn session_after(&self, commit: &Commit, write: &crate::SessionWrite) -> Result<Session, StoreError> {
        let found = self.sessions.get(&write.id).map_or(0, |session| session.version);
        if found != write.follows {
            return Err(StoreError::SessionMoved {
                session: write.id.clone(),
                expected: write.follows,
                found,
            });
        }
        self.know(commit, write.contents.iter())?;
        Ok(Session {
            id: write.id.clone(),
            version: found + 1,
            body: write.body.clone(),
            contents: write.contents.clone(),
            run: commit.run.clone(),
            updated_at: write.at,
        })
    }

    fn remove(&mut self, ids: &[String]) -> Removed {
        let mut removed = Removed::default();
        for id in ids {
            if let Some(kept) = self.runs.get_mut(id)
                && !kept.is_hidden
            {
                kept.is_hidden = true;
                removed.runs += 1;
                self.timers.retain(|timer| timer.run != *id);
            }
        }
        let mut names = BTreeSet::new();
        loop {
            let bases: BTreeSet<&String> = self
                .runs
                .values()
                .filter_map(|kept| Some(&kept.run.base.as_ref()?.run))
                .collect();
            let free = self
                .runs
                .values()
                .find(|kept| kept.is_hidden && !bases.contains(&kept.run.id));
            let Some(id) = free.map(|kept| kept.run.id.clone()) else {
                break;
            };
            if let Some(kept) = self.runs.remove(&id) {
                removed.bytes += kept.bytes();
                names.extend(kept.names().copied());
            }
        }
        removed.bytes += self.collect(names);
        removed
    }

    /// Lets go of those contents that nothing names any more; their bytes.
    fn collect(&mut self, mut candidates: BTreeSet<ContentHash>) -> u64 {
        let named = self
            .runs
            .values()
            .flat_map(Kept::names)
            .chain(self.sessions.values().flat_map(|session| &session.contents));
        named.for_each(|hash| {
            candidates.remove(hash);
        });
        candidates
            .iter()
            .filter_map(|hash| self.contents.remove(hash))
            .map(|text| text.len() as u64)
            .sum()
    }
}

pub(crate) fn no_run(id: &str) -> StoreError {
    StoreError::NoSuchRun { run: id.to_owned() }
}

pub(crate) fn moved(run: &str, expected: u64, found: u64, fits: bool) -> Result<(), StoreError> {
    if fits {
        return Ok(());
    }
    Err(StoreError::Moved {
        run: run.to_owned(),
        expected,
        found,
    })
}
