//! Realms of single snippets, made before they are needed: making one takes longer than most snippets.

use std::sync::Arc;

use pirn_definition::script::ScriptFault;

use super::realm::Realm;
use super::realm_options::RealmOptions;

/// The next realm of a thread. Every snippet has a separate realm, created by [`RealmReserve::prepare`] while the thread is idle.
#[derive(Default)]
pub(crate) struct RealmReserve {
    /// Options of the last realm that was taken: the next snippet probably has equal ones.
    last: Option<RealmOptions>,
    next: Option<Realm>,
    /// The realm of a snippet that has ended.
    used: Option<Realm>,
}

impl RealmReserve {
    /// Returns a fresh realm with these options: the prepared one if its options are equal, else a new one.
    pub(crate) fn take(&mut self, options: &RealmOptions) -> Result<Realm, ScriptFault> {
        let next = self.next.take();
        let is_same = self.last.as_ref().is_some_and(|last| last.is_same(options));
        self.last = Some(options.clone());
        next.filter(|_| is_same).map_or_else(|| Realm::new(options), Ok)
    }

    /// Accepts a used realm. It is dropped by [`RealmReserve::prepare`], after its snippet's result is sent: freeing its memory takes
    /// about as long as allocating it.
    pub(crate) fn retire(&mut self, realm: Realm) {
        self.used = Some(realm);
    }

    /// Returns whether [`RealmReserve::prepare`] makes a realm.
    pub(crate) fn must_prepare(&self) -> bool {
        self.next.is_none() && self.last.is_some()
    }

    /// Drops the used realm, and makes the next one if a realm was taken before.
    pub(crate) fn prepare(&mut self) {
        self.used = None;
        if self.next.is_none()
            && let Some(last) = &self.last
        {
            // A failure is reported by the snippet that needs the realm.
            self.next = Realm::new(last).ok();
        }
    }
}

impl RealmOptions {
    fn is_same(&self, other: &Self) -> bool {
        (self.memory, self.stack, self.shared) == (other.memory, other.stack, other.shared)
            && Arc::ptr_eq(&self.functions, &other.functions)
    }
}
