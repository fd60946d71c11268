//! The answer to a command that has been given to a store.

use futures::future::BoxFuture;

use crate::error::StoreError;

/// The answer to a command that has been given. Dropping it takes nothing back.
pub type Pending<T> = BoxFuture<'static, Result<T, StoreError>>;
