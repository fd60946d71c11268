//! Order of registration and admission of a run, so that closing an engine misses no run.
//!
//! Invariants:
//! 1. An admitted run was registered before: [`admit`] registers, then enters. So [`close_and_list`], which closes, then
//!    lists, returns every run that is inside after the close.
//! 2. A refused run is unregistered.
//! 3. After a close no run is admitted.
//!
//! No deadlock: no lock is held from one step to the next.

use crate::drain_gate::{DrainGate, Permit, Refused};

/// Registry of runs.
pub trait Registry {
    /// Key of a run.
    type Key: ?Sized;
    /// Registered value of a run.
    type Run;

    /// Registers a run.
    fn insert(&self, key: &Self::Key, run: Self::Run);

    /// Unregisters a run.
    fn remove(&self, key: &Self::Key);

    /// Returns all registered runs.
    fn list(&self) -> Vec<Self::Run>;
}

/// Registers and admits a run.
///
/// # Errors
/// Those of [`DrainGate::try_enter`]. The run is unregistered.
pub fn admit<R: Registry>(gate: &DrainGate, registry: &R, key: &R::Key, run: R::Run) -> Result<Permit, Refused> {
    if mutant!("admission: enters before it is registered") {
        let permit = gate.try_enter()?;
        registry.insert(key, run);
        return Ok(permit);
    }
    registry.insert(key, run);
    gate.try_enter().inspect_err(|_| {
        if !mutant!("admission: a refused run stays registered") {
            registry.remove(key);
        }
    })
}

/// Closes the gate, and returns the runs that may be inside.
pub fn close_and_list<R: Registry>(gate: &DrainGate, registry: &R) -> Vec<R::Run> {
    if mutant!("admission: lists, then closes") {
        let runs = registry.list();
        gate.close();
        return runs;
    }
    gate.close();
    registry.list()
}
