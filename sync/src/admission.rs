//! The order in which a run is made known and let in, so that whoever closes an engine misses none.
//!
//! Invariants:
//! 1. Who is let in was known before: [`admit`] makes known, then enters. So of everybody inside after a close,
//!    [`close_and_list`], which closes, then lists, names each.
//! 2. Who is refused is forgotten again.
//! 3. After a close nobody gets in.
//!
//! No deadlock: no lock is held from one step to the next.

use crate::drain_gate::{DrainGate, Permit, Refused};

/// The runs that are known, by whatever keeps them.
pub trait Registry {
    /// Names a run.
    type Key: ?Sized;
    /// Stands for a run.
    type Run;

    /// Makes a run known.
    fn insert(&self, key: &Self::Key, run: Self::Run);

    /// Forgets a run.
    fn remove(&self, key: &Self::Key);

    /// Every run that is known.
    fn list(&self) -> Vec<Self::Run>;
}

/// Makes a run known and lets it in.
///
/// # Errors
/// As [`DrainGate::try_enter`]; the run is forgotten.
pub fn admit<R: Registry>(gate: &DrainGate, registry: &R, key: &R::Key, run: R::Run) -> Result<Permit, Refused> {
    if mutant!("admission: enters before it is known") {
        let permit = gate.try_enter()?;
        registry.insert(key, run);
        return Ok(permit);
    }
    registry.insert(key, run);
    gate.try_enter().inspect_err(|_| {
        if !mutant!("admission: a refused run stays known") {
            registry.remove(key);
        }
    })
}

/// Lets nobody in any more, and lists who may be inside.
pub fn close_and_list<R: Registry>(gate: &DrainGate, registry: &R) -> Vec<R::Run> {
    if mutant!("admission: lists, then closes") {
        let runs = registry.list();
        gate.close();
        return runs;
    }
    gate.close();
    registry.list()
}
