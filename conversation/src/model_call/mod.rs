//! One model call: the choice of the profile, the retries, and the admission of the request.
//!
//! 1. [`Attempts`] decides after every failure: retry after a delay, use the next profile, or fail.
//! 2. [`Gate`] decides when a request may start, within limits on concurrent requests, requests a minute and tokens a minute.
//! 3. [`Prices`] computes the cost of a request.
//! 4. [`CacheWatch`] compares the reported use of the provider's prompt cache with the previous request.
//! 5. `Attempts` and `Gate` take the time and randomness as arguments; the code that sends requests is in the crate `pirn`.
//!
//! Not here: the protocols of providers and the waits, which are in the embedding layer.

mod attempts;
mod cache;
mod failure;
mod finish;
mod gate;
mod prices;
mod window;

pub use attempts::{Attempts, Next, RetryRule};
pub use cache::{
    CACHE_LIFETIME_MS, CacheCollapses, CacheObservation, CacheReason, CacheReport, CacheUse, CacheWatch,
    PredictedRequest,
};
pub use failure::{FailureKind, ModelFailure};
pub use finish::FinishReason;
pub use gate::{Gate, GateLimits, TicketId};
pub use prices::{CallBound, Price, Prices};
