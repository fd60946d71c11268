//! Names with one value each, shared by all processes. The oldest are deleted beyond a maximum number.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use restate_sdk::context::{ContextReadState, ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;
use serde::{Deserialize, Serialize};

use crate::wire::{SettleCall, UnsettleCall};

const LINE: &str = "line";

/// Names in order of arrival, numbered.
#[derive(Default, Serialize, Deserialize)]
struct Line {
    first: u64,
    next: u64,
}

fn name_key(name: &str) -> String {
    format!("name {name}")
}

fn place_key(number: u64) -> String {
    format!("place {number}")
}

pub(super) struct NamesObject;

#[restate_sdk::object(name = "PirnNames", client_visibility = "pub(super)")]
impl NamesObject {
    /// Sets the value of a name if it has none, and returns its value.
    #[handler]
    async fn settle(&self, ctx: ObjectContext<'_>, call: Json<SettleCall>) -> Result<Json<String>, HandlerError> {
        let SettleCall { name, value, most } = call.0;
        let key = name_key(&name);
        if let Some(kept) = ctx.get::<Json<(String, u64)>>(&key).await? {
            return Ok(Json(kept.0.0));
        }
        let mut line = ctx
            .get::<Json<Line>>(LINE)
            .await?
            .map(|line| line.0)
            .unwrap_or_default();
        ctx.set(&key, Json((value.clone(), line.next)));
        ctx.set(&place_key(line.next), Json(name));
        line.next += 1;
        // At least one, so that the name just set survives.
        while line.next - line.first > most.max(1) {
            let place = place_key(line.first);
            if let Some(oldest) = ctx.get::<Json<String>>(&place).await? {
                let key = name_key(&oldest.0);
                // The name may have been deleted and set again since: only its latest number deletes it.
                let kept = ctx.get::<Json<(String, u64)>>(&key).await?;
                if kept.is_some_and(|kept| kept.0.1 == line.first) {
                    ctx.clear(&key);
                }
            }
            ctx.clear(&place);
            line.first += 1;
        }
        ctx.set(LINE, Json(line));
        Ok(Json(value))
    }

    #[handler]
    async fn unsettle(&self, ctx: ObjectContext<'_>, call: Json<UnsettleCall>) -> Result<(), HandlerError> {
        let UnsettleCall { name, value } = call.0;
        let key = name_key(&name);
        let kept = ctx.get::<Json<(String, u64)>>(&key).await?;
        // Another process may have settled the name anew.
        if kept.is_some_and(|kept| kept.0.0 == value) {
            ctx.clear(&key);
        }
        Ok(())
    }
}
