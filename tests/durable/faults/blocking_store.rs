//! A store that completes every command before it returns, so that only the virtual clock determines the order of events.

use std::sync::Arc;

use futures::executor::block_on;
use pirn::store::{
    Claims, Commit, ContentHash, Pending, Record, Removed, Run, RunFilter, RunPlace, Session, Snapshot, Store, Timer,
};

/// A wrapper that blocks on each future of the inner store.
pub(crate) struct AtOnce<S>(pub(crate) S);

fn answered<T: Send + 'static>(pending: Pending<T>) -> Pending<T> {
    // Uses a separate thread, because the caller may already be inside of `block_on`, which must not be nested.
    let answer = std::thread::scope(|scope| scope.spawn(|| block_on(pending)).join());
    Box::pin(std::future::ready(answer.expect("a store does not panic")))
}

impl<S: Store> Store for AtOnce<S> {
    fn location(&self) -> &Arc<str> {
        self.0.location()
    }
    fn claims(&self) -> Option<&dyn Claims> {
        self.0.claims()
    }
    fn commit(&self, commit: Commit) -> Pending<u64> {
        answered(self.0.commit(commit))
    }
    fn run(&self, id: &str) -> Pending<Option<Run>> {
        answered(self.0.run(id))
    }
    fn runs(&self, filter: RunFilter, after: Option<RunPlace>, limit: usize) -> Pending<Vec<Run>> {
        answered(self.0.runs(filter, after, limit))
    }
    fn journal(&self, id: &str, after: u64, limit: usize) -> Pending<Vec<Record>> {
        answered(self.0.journal(id, after, limit))
    }
    fn contents(&self, hashes: Vec<ContentHash>) -> Pending<Vec<Arc<str>>> {
        answered(self.0.contents(hashes))
    }
    fn chain(&self, last: ContentHash, limit: usize) -> Pending<Vec<ContentHash>> {
        answered(self.0.chain(last, limit))
    }
    fn snapshot(&self, id: &str, at_most: u64) -> Pending<Option<Snapshot>> {
        answered(self.0.snapshot(id, at_most))
    }
    fn timers(&self, until: u64, limit: usize) -> Pending<Vec<Timer>> {
        answered(self.0.timers(until, limit))
    }
    fn sessions(&self, after: Option<String>, limit: usize) -> Pending<Vec<Session>> {
        answered(self.0.sessions(after, limit))
    }
    fn session(&self, id: &str) -> Pending<Option<Session>> {
        answered(self.0.session(id))
    }
    fn set_meta(&self, name: &str, value: Option<String>) -> Pending<()> {
        answered(self.0.set_meta(name, value))
    }
    fn meta(&self, name: &str) -> Pending<Option<String>> {
        answered(self.0.meta(name))
    }
    fn remove(&self, ids: Vec<String>, dry_run: bool) -> Pending<Removed> {
        answered(self.0.remove(ids, dry_run))
    }
    fn remove_session(&self, id: &str) -> Pending<bool> {
        answered(self.0.remove_session(id))
    }
}
