//! Memory budgets: memory that several clients can make grow is reserved before it is allocated.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that several parts of the service can reserve.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    free: Arc<Semaphore>,
    limit: usize,
}

/// A reservation of a budget's bytes, released on drop.
#[derive(Debug)]
pub(super) struct MemoryReservation {
    budget: Budget,
    permit: OwnedSemaphorePermit,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        // The semaphore has one permit per byte; a reservation is limited to 32 bits.
        let limit = limit.min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self {
            free: Arc::new(Semaphore::new(limit)),
            limit,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Reserves bytes; `None` if fewer are free.
    pub(super) fn reserve(&self, bytes: usize) -> Option<MemoryReservation> {
        let bytes = u32::try_from(bytes).ok()?;
        let permit = Arc::clone(&self.free).try_acquire_many_owned(bytes).ok()?;
        Some(self.reserved(permit))
    }

    /// Waits until `bytes` are free, and reserves them, in FIFO order. `None` if they exceed the budget's limit.
    pub(super) async fn wait(&self, bytes: usize) -> Option<MemoryReservation> {
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= self.limit)?;
        let permit = Arc::clone(&self.free).acquire_many_owned(bytes).await.ok()?;
        Some(self.reserved(permit))
    }

    fn reserved(&self, permit: OwnedSemaphorePermit) -> MemoryReservation {
        MemoryReservation {
            budget: self.clone(),
            permit,
        }
    }
}

impl MemoryReservation {
    pub(super) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Grows the reservation to `bytes`. Returns false, without any change, if the budget has too few.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes());
        let more = self.budget.reserve(more);
        more.map(|more| self.permit.merge(more.permit)).is_some()
    }

    /// Shrinks the reservation to `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        drop(self.permit.split(self.bytes().saturating_sub(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_their_budget_and_are_released() {
        let budget = Budget::new(100);
        let mut first = budget.reserve(60).expect("60 of 100");
        assert!(budget.reserve(41).is_none());
        assert!(first.grow_to(70) && !first.grow_to(101));
        assert_eq!(first.bytes(), 70);
        let second = budget.reserve(30).expect("the rest");
        assert!(budget.reserve(1).is_none());
        first.shrink_to(10);
        assert_eq!(budget.reserve(60).map(|reserved| reserved.bytes()), Some(60));
        drop((first, second));
        assert!(budget.reserve(100).is_some());
        assert!(budget.reserve(usize::MAX).is_none());
    }
}
