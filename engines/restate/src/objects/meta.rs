//! Metadata object: one text of the engine for each name.
#![allow(
    missing_docs,
    clippy::unused_async,
    reason = "the macro generates the client in this module"
)]

use restate_sdk::context::{ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;

pub(super) struct MetaObject;

#[restate_sdk::object(name = "PirnMeta", client_visibility = "pub(super)")]
impl MetaObject {
    #[handler]
    async fn put(&self, ctx: ObjectContext<'_>, value: Json<Option<String>>) -> Result<(), HandlerError> {
        match value.0 {
            Some(value) => ctx.set("value", Json(value)),
            None => ctx.clear_all(),
        }
        Ok(())
    }
}
