//! Store in memory, with the semantics of every other store.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future;

use crate::commit::{Commit, NewRun, Precondition, TimerChange};
use crate::content::{Content, ContentHash};
use crate::error::{Pending, StoreError};
use crate::run::{MAX_FORKS, Record};
use crate::run::{Run, RunFilter, RunPlace, RunStatus, Session, Snapshot, Timer};
use crate::store::{Removed, Store};

/// Store in memory. Clones share its state.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    location: Arc<str>,
}

#[derive(Clone, Debug, Default)]
struct State {
    runs: BTreeMap<String, StoredRun>,
    contents: BTreeMap<ContentHash, Text>,
    /// Pairs of a content and one that follows it.
    followers: BTreeSet<(ContentHash, ContentHash)>,
    timers: BTreeSet<Timer>,
    /// Index of visible runs: lists by status, session or workflow, in the order of runs.
    lists: BTreeSet<(List, RunPlace)>,
    sessions: BTreeMap<String, Session>,
    meta: BTreeMap<String, String>,
}

/// Key of a list. Statuses are indexes in [`RunStatus::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Status(usize),
    Session(String),
    Workflow(String, usize),
}

/// Returns the list entries of a run.
fn entries_of(run: &Run) -> impl Iterator<Item = (List, RunPlace)> {
    // Computed from the run alone, so that the entries of its former state can be removed.
    let status = status_at(run.status);
    let session = run.session.clone().map(List::Session);
    let lists = [List::Status(status), List::Workflow(run.workflow.clone(), status)];
    let place = run.place();
    lists.into_iter().chain(session).map(move |list| (list, place.clone()))
}

fn status_at(status: RunStatus) -> usize {
    RunStatus::ALL
        .iter()
        .position(|known| *known == status)
        // Cannot occur: `ALL` has every status.
        .unwrap_or_default()
}

#[derive(Clone, Debug)]
struct Text {
    text: Arc<str>,
    follows: Option<ContentHash>,
}

#[derive(Clone, Debug)]
struct StoredRun {
    run: Run,
    /// Removed, but still the base of other runs.
    is_hidden: bool,
    /// Records after the base.
    records: Vec<Record>,
    snapshot: Option<Snapshot>,
}

impl StoredRun {
    /// Returns the number of the step before the first record that is stored with this run.
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
    /// Creates an empty store.
    pub fn new() -> Self {
        Self {
            state: Arc::default(),
            location: "memory".into(),
        }
    }

    fn with<T: Send + 'static>(&self, command: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Pending<T> {
        // A poisoned lock is safe: commands check everything before they change the state.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Executed before the future is returned, so that commands take effect in the order of their calls.
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
        self.with(|state| Ok(state.runs_of(&filter, after.as_ref(), limit)))
    }

    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        self.with(|state| {
            let kept = state.visible(id).ok_or_else(|| no_run(id))?;
            let (mut kept, mut last) = (kept, kept.run.steps);
            let mut parts = Vec::new();
            loop {
                let base = kept.base_step();
                // Steps after the fork belong to the base run alone.
                let own = &kept.records[..last.saturating_sub(base) as usize];
                parts.push(&own[(after.saturating_sub(base) as usize).min(own.len())..]);
                match &kept.run.base {
                    Some(base) => {
                        // A fork of a fork may share fewer steps than its base does.
                        last = last.min(base.step);
                        // Not `visible`: a removed base is hidden, and its forks still read its records.
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
                    .map(|kept| Arc::clone(&kept.text))
                    .ok_or(StoreError::NoSuchContent { hash })
            };
            hashes.into_iter().map(find).collect()
        })
    }

    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        self.with(|state| {
            if !state.contents.contains_key(&last) {
                return Err(StoreError::NoSuchContent { hash: last });
            }
            let before = |hash: &ContentHash| state.contents.get(hash)?.follows;
            Ok(std::iter::successors(Some(last), before).take(limit).collect())
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
            // Removal from a copy of the state gives the answer of the real removal.
            if dry_run {
                return Ok(state.clone().remove(&ids));
            }
            Ok(state.remove(&ids))
        })
    }

    fn replace(&self, commit: Commit) -> Pending<u64> {
        self.with(|state| {
            if state.visible(&commit.run).is_none() {
                return Err(no_run(&commit.run));
            }
            // A copy, because a refused commit must not remove the run.
            let mut replaced = state.clone();
            replaced.remove(std::slice::from_ref(&commit.run));
            let steps = replaced.commit(commit)?;
            *state = replaced;
            Ok(steps)
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
    fn visible(&self, id: &str) -> Option<&StoredRun> {
        self.runs.get(id).filter(|kept| !kept.is_hidden)
    }

    fn runs_of(&self, filter: &RunFilter, after: Option<&RunPlace>, limit: usize) -> Vec<Run> {
        let asked = RunStatus::ALL.into_iter().filter(|status| filter.has_status(*status));
        let lists: Vec<List> = match (&filter.session, &filter.workflow) {
            // A session's list is filtered by workflow and status afterwards, because no list has all three.
            (Some(session), _) => vec![List::Session(session.clone())],
            (None, Some(workflow)) => asked
                .map(|status| List::Workflow(workflow.clone(), status_at(status)))
                .collect(),
            (None, None) => asked.map(|status| List::Status(status_at(status))).collect(),
        };
        let mut runs: Vec<&Run> = Vec::new();
        for list in lists {
            let listed = self.listed(list, after, filter.youngest_first);
            let listed = listed.filter_map(|place| Some(&self.runs.get(&place.id)?.run));
            // Each list contributes at most `limit` runs: more of one list cannot be among the first ones of all.
            runs.extend(listed.filter(|run| filter.has(run)).take(limit));
        }
        runs.sort_by_cached_key(|run| run.place());
        if filter.youngest_first {
            runs.reverse();
        }
        runs.into_iter().take(limit).cloned().collect()
    }

    /// Returns the entries of a list after a position, in the requested order.
    fn listed(
        &self,
        list: List,
        after: Option<&RunPlace>,
        youngest_first: bool,
    ) -> Box<dyn Iterator<Item = &RunPlace> + '_> {
        let least = RunPlace {
            started_at: 0,
            id: String::new(),
        };
        let is_of = {
            let list = list.clone();
            move |(of, _): &&(List, RunPlace)| *of == list
        };
        match (after, youngest_first) {
            (None, false) => Box::new(
                self.lists
                    .range((list, least)..)
                    .take_while(is_of)
                    .map(|entry| &entry.1),
            ),
            (Some(after), false) => {
                let after = Bound::Excluded((list, after.clone()));
                Box::new(
                    self.lists
                        .range((after, Bound::Unbounded))
                        .take_while(is_of)
                        .map(|entry| &entry.1),
                )
            }
            (Some(after), true) => Box::new(
                self.lists
                    .range(..(list, after.clone()))
                    .rev()
                    .take_while(is_of)
                    .map(|entry| &entry.1),
            ),
            (None, true) => {
                let end = RunPlace {
                    started_at: u64::MAX,
                    // 516 bytes of the greatest character: greater than every id, which has at most 512 bytes.
                    id: "\u{10ffff}".repeat(129),
                };
                Box::new(
                    self.lists
                        .range(..=(list, end))
                        .rev()
                        .take_while(is_of)
                        .map(|entry| &entry.1),
                )
            }
        }
    }

    fn commit(&mut self, commit: Commit) -> Result<u64, StoreError> {
        // Everything is checked before anything is changed: a refused commit has no effect.
        commit.check()?;
        let before = match &commit.follows {
            Precondition::Start(new) => Some(self.start(&commit.run, new)?),
            Precondition::Step(step) => {
                let kept = self.visible(&commit.run).ok_or_else(|| no_run(&commit.run))?;
                // Refuses a second writer of the run.
                moved(&commit.run, *step, kept.run.steps, *step == kept.run.steps)?;
                None
            }
        };
        let named = before.iter().flat_map(StoredRun::names).chain(&commit.names);
        // A chain with a gap could never be read to its start.
        let followed: Vec<ContentHash> = commit.contents.iter().filter_map(Content::follows).collect();
        self.know(&commit, named.chain(&followed))?;
        let session = commit
            .session
            .as_ref()
            .map(|write| self.session_after(&commit, write))
            .transpose()?;
        if let Some(snapshot) = &commit.snapshot {
            let run = before
                .as_ref()
                .or_else(|| self.runs.get(&commit.run))
                .map(|kept| &kept.run);
            let steps = run.map_or(0, |run| run.steps) + commit.records.len() as u64;
            // The snapshot may be of a step of this very commit.
            moved(&commit.run, snapshot.step, steps, snapshot.step <= steps)?;
        }
        // Nothing is refused below. The run is changed in the map: a copy would cost its whole journal.
        let kept = match self.runs.entry(commit.run.clone()) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(vacant) => {
                let Some(begun) = before else {
                    return Err(no_run(&commit.run));
                };
                self.lists.extend(entries_of(&begun.run));
                vacant.insert(begun)
            }
        };
        kept.run.steps += commit.records.len() as u64;
        if commit.snapshot.is_some() {
            kept.snapshot = commit.snapshot;
        }
        if let Some(last) = commit.records.last() {
            kept.run.updated_at = last.at;
        }
        // The lists contain the status, so they only change with it.
        if let Some(status) = commit.status.filter(|status| *status != kept.run.status) {
            for entry in entries_of(&kept.run) {
                self.lists.remove(&entry);
            }
            kept.run.status = status;
            self.lists.extend(entries_of(&kept.run));
        }
        kept.records.extend(commit.records);
        kept.run.contents.extend(&commit.names);
        let steps = kept.run.steps;
        for content in commit.contents {
            let hash = content.hash();
            // Contents are immutable: an equal text is stored already, and its predecessor stays the first one given.
            if let Entry::Vacant(vacant) = self.contents.entry(hash) {
                let follows = content.follows();
                let text = Arc::clone(content.text());
                vacant.insert(Text { text, follows });
                self.followers.extend(follows.map(|before| (before, hash)));
            }
        }
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
        Ok(steps)
    }

    fn start(&self, id: &str, new: &NewRun) -> Result<StoredRun, StoreError> {
        // A hidden run keeps its id: its forks name it as their base.
        if self.runs.contains_key(id) {
            return Err(StoreError::RunExists { run: id.to_owned() });
        }
        let mut steps = 0;
        if let Some(base) = &new.base {
            let kept = self.visible(&base.run).ok_or_else(|| no_run(&base.run))?;
            moved(&base.run, base.step, kept.run.steps, base.step <= kept.run.steps)?;
            // The limit bounds a read of the journal, which visits every ancestor.
            let ancestors = std::iter::successors(Some(kept), |kept| self.runs.get(&kept.run.base.as_ref()?.run));
            if ancestors.count() >= MAX_FORKS {
                return Err(StoreError::too_many_forks());
            }
            steps = base.step;
        }
        Ok(StoredRun {
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
                // Hidden first and deleted below: a run of this list may be the base of another one of it.
                kept.is_hidden = true;
                for entry in entries_of(&kept.run) {
                    self.lists.remove(&entry);
                }
                removed.runs += 1;
                // A timer of a removed run would wake a run that does not exist.
                self.timers.retain(|timer| timer.run != *id);
            }
        }
        let mut names = BTreeSet::new();
        loop {
            // Computed again for each deletion, which may free the base of the deleted run.
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
                // Collected for one pass at the end, because the contents may be named by another run of the list.
                names.extend(kept.names().copied());
            }
        }
        removed.bytes += self.collect(names);
        removed
    }

    /// Returns the contents named by runs and sessions.
    fn named(&self) -> BTreeSet<ContentHash> {
        let runs = self.runs.values().flat_map(StoredRun::names);
        let sessions = self.sessions.values().flat_map(|session| &session.contents);
        runs.chain(sessions).copied().collect()
    }

    /// Deletes those of these contents, and of their predecessors, that no run or session needs. Returns the number of bytes.
    fn collect(&mut self, candidates: BTreeSet<ContentHash>) -> u64 {
        let mut bytes = 0;
        let mut free: Vec<ContentHash> = candidates.into_iter().collect();
        let first = ContentHash::from_bytes([0; ContentHash::LEN]);
        let last = ContentHash::from_bytes([u8::MAX; ContentHash::LEN]);
        // Computed once: no name is added during the pass.
        let named = &self.named();
        while let Some(hash) = free.pop() {
            let mut followers = self.followers.range((hash, first)..=(hash, last));
            // A content that another one follows is part of a chain that is still needed.
            if followers.next().is_some() || named.contains(&hash) {
                continue;
            }
            if let Some(gone) = self.contents.remove(&hash) {
                bytes += gone.text.len() as u64;
                if let Some(before) = gone.follows {
                    self.followers.remove(&(before, hash));
                    // The predecessor had this follower, and may be free now.
                    free.push(before);
                }
            }
        }
        bytes
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
