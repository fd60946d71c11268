//! Futures returned by the commands of a store.

use futures::future::BoxFuture;

use crate::error::StoreError;

/// Answer to a command. The command is executed even if the future is dropped.
pub type Pending<T> = BoxFuture<'static, Result<T, StoreError>>;
