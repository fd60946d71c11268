//! One call of a model, as far as it is decided here: which profile is asked, when it is asked again, and whether
//! there is room for the request.
//!
//! 1. [`Attempts`] decides after every failure: try again after a delay, go on with the next profile, or give up.
//! 2. [`Gate`] decides when a request may start: so many at once, so many tokens a minute, in the order they came.
//! 3. [`Prices`] say what it cost.
//! 4. The first two take the time and chance as arguments; what carries them out lives with the models.

mod attempts;
mod failure;
mod finish;
mod gate;
mod prices;
mod window;

pub use attempts::{Attempts, Next, RetryRule};
pub use failure::{FailureKind, ModelFailure};
pub use finish::FinishReason;
pub use gate::{Gate, GateLimits, TicketId};
pub use prices::{CallBound, Price, Prices};
