//! Methods of a store that another store forwards.

/// Implements methods of [`Store`](crate::Store) by the store in a field, for a store that changes some methods of another one.
///
/// ```
/// use pirn_store::{Commit, MemoryStore, Pending, Store};
///
/// /// A store that logs its commits.
/// struct Logging(MemoryStore);
///
/// impl Store for Logging {
///     pirn_store::forward_to_store!(0: location claims run runs journal contents chain snapshot timers sessions session
///         set_meta meta remove remove_session);
///     fn commit(&self, commit: Commit) -> Pending<u64> {
///         println!("{}", commit.run);
///         self.0.commit(commit)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_to_store {
    ($field:tt: $($method:ident)+) => { $($crate::forward_to_store!(@ $field $method);)+ };
    (@ $field:tt location) => {
        fn location(&self) -> &std::sync::Arc<str> {
            self.$field.location()
        }
    };
    (@ $field:tt claims) => {
        fn claims(&self) -> Option<&dyn $crate::Claims> {
            self.$field.claims()
        }
    };
    (@ $field:tt commit) => {
        fn commit(&self, commit: $crate::Commit) -> $crate::Pending<u64> {
            self.$field.commit(commit)
        }
    };
    (@ $field:tt run) => {
        fn run(&self, id: &str) -> $crate::Pending<Option<$crate::Run>> {
            self.$field.run(id)
        }
    };
    (@ $field:tt runs) => {
        fn runs(
            &self,
            filter: $crate::RunFilter,
            after: Option<$crate::RunPlace>,
            limit: usize,
        ) -> $crate::Pending<Vec<$crate::Run>> {
            self.$field.runs(filter, after, limit)
        }
    };
    (@ $field:tt journal) => {
        fn journal(&self, id: &str, after: u64, limit: usize) -> $crate::Pending<Vec<$crate::Record>> {
            self.$field.journal(id, after, limit)
        }
    };
    (@ $field:tt contents) => {
        fn contents(
            &self,
            hashes: Vec<$crate::ContentHash>,
        ) -> $crate::Pending<Vec<std::sync::Arc<str>>> {
            self.$field.contents(hashes)
        }
    };
    (@ $field:tt chain) => {
        fn chain(
            &self,
            last: $crate::ContentHash,
            limit: usize,
        ) -> $crate::Pending<Vec<$crate::ContentHash>> {
            self.$field.chain(last, limit)
        }
    };
    (@ $field:tt snapshot) => {
        fn snapshot(&self, id: &str, at_most: u64) -> $crate::Pending<Option<$crate::Snapshot>> {
            self.$field.snapshot(id, at_most)
        }
    };
    (@ $field:tt timers) => {
        fn timers(&self, until: u64, limit: usize) -> $crate::Pending<Vec<$crate::Timer>> {
            self.$field.timers(until, limit)
        }
    };
    (@ $field:tt sessions) => {
        fn sessions(
            &self,
            after: Option<String>,
            limit: usize,
        ) -> $crate::Pending<Vec<$crate::Session>> {
            self.$field.sessions(after, limit)
        }
    };
    (@ $field:tt session) => {
        fn session(&self, id: &str) -> $crate::Pending<Option<$crate::Session>> {
            self.$field.session(id)
        }
    };
    (@ $field:tt set_meta) => {
        fn set_meta(&self, name: &str, value: Option<String>) -> $crate::Pending<()> {
            self.$field.set_meta(name, value)
        }
    };
    (@ $field:tt meta) => {
        fn meta(&self, name: &str) -> $crate::Pending<Option<String>> {
            self.$field.meta(name)
        }
    };
    (@ $field:tt remove) => {
        fn remove(&self, ids: Vec<String>, dry_run: bool) -> $crate::Pending<$crate::Removed> {
            self.$field.remove(ids, dry_run)
        }
    };
    (@ $field:tt replace) => {
        fn replace(&self, commit: $crate::Commit) -> $crate::Pending<u64> {
            self.$field.replace(commit)
        }
    };
    (@ $field:tt remove_session) => {
        fn remove_session(&self, id: &str) -> $crate::Pending<bool> {
            self.$field.remove_session(id)
        }
    };
}
