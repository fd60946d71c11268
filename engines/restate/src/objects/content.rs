//! Content object: a text with its hash as key, stored until the last run, session or content that names it is removed.
#![allow(
    missing_docs,
    clippy::unused_async,
    reason = "the macro generates the client in this module"
)]

use restate_sdk::context::{ContextReadState, ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;

use super::call::Target;
use crate::wire::{NameAllCall, NameCall, NameReply, UnnameCall, by_content, is_by_content};

const TEXT: &str = "text";
/// Hash of the preceding content of the chain.
const FOLLOWS: &str = "follows";
/// Set if another content follows this one. Contents of a chain are not cached by processes.
const FOLLOWED: &str = "followed";
/// Number of runs, sessions and contents that name this content.
const NAMERS: &str = "namers";

fn namer(by: &str) -> String {
    format!("by {by}")
}

pub(super) struct ContentObject;

#[restate_sdk::object(name = "PirnContent", client_visibility = "pub(super)")]
impl ContentObject {
    #[handler]
    async fn name(&self, ctx: ObjectContext<'_>, call: Json<NameCall>) -> Result<Json<NameReply>, HandlerError> {
        let NameCall { text, follows, by } = call.0;
        let key = by.as_deref().map(namer);
        // Both reads are sent before the first is awaited: one round trip.
        let (named, is_known) = (ctx.get::<u64>(NAMERS), key.as_deref().map(|key| ctx.get::<u64>(key)));
        let named = named.await?;
        let is_known = match is_known {
            Some(is_known) => is_known.await?.is_some(),
            None => true,
        };
        // The first namer stores the text. Later ones find it, and theirs is equal because its hash is the key.
        if named.is_none() {
            let Some(text) = text else {
                return Ok(Json(NameReply::Missing));
            };
            if let Some(before) = follows {
                let call = NameCall {
                    text: None,
                    follows: None,
                    by: Some(by_content(ctx.key())),
                };
                let named = Target::content(&before, "name").ask::<_, NameReply>(&ctx, call);
                // The predecessor is named before this content exists, so that no chain has a gap.
                if named.call().await?.0 == NameReply::Missing {
                    return Ok(Json(NameReply::Missing));
                }
                ctx.set(FOLLOWS, Json(before));
            }
            ctx.set(TEXT, Json(text));
            ctx.set(NAMERS, 0);
        }
        // A repeated name must not be counted twice.
        let Some(key) = key.as_ref().filter(|_| !is_known) else {
            return Ok(Json(NameReply::Known));
        };
        ctx.set(key, 1);
        if by.as_deref().is_some_and(is_by_content) {
            ctx.set(FOLLOWED, 1);
        }
        ctx.set(NAMERS, named.unwrap_or(0) + 1);
        Ok(Json(NameReply::Named))
    }

    /// Names the content for several runs. Returns false if it is missing and the call has no text.
    #[handler]
    async fn name_all(&self, ctx: ObjectContext<'_>, call: Json<NameAllCall>) -> Result<bool, HandlerError> {
        let NameAllCall { text, by } = call.0;
        let keys: Vec<String> = by.iter().map(|by| namer(by)).collect();
        // All reads are sent before the first is awaited: one round trip.
        let (named, known) = (
            ctx.get::<u64>(NAMERS),
            keys.iter().map(|key| ctx.get::<u64>(key)).collect::<Vec<_>>(),
        );
        let named = match (named.await?, text) {
            (Some(named), _) => named,
            (None, Some(text)) => {
                ctx.set(TEXT, Json(text));
                0
            }
            (None, None) => return Ok(false),
        };
        let mut added = 0;
        for (key, known) in keys.iter().zip(known) {
            // A repeated name must not be counted twice.
            if known.await?.is_none() {
                ctx.set(key, 1);
                added += 1;
            }
        }
        ctx.set(NAMERS, named + added);
        Ok(true)
    }

    /// Returns the number of bytes freed.
    #[handler]
    async fn unname(&self, ctx: ObjectContext<'_>, call: Json<UnnameCall>) -> Result<u64, HandlerError> {
        let UnnameCall { by, is_freed } = call.0;
        let Some(mut named) = ctx.get::<u64>(NAMERS).await? else {
            return Ok(0);
        };
        let key = namer(&by);
        // A call may arrive for a name that was undone already.
        if ctx.get::<u64>(&key).await?.is_some() {
            ctx.clear(&key);
            named = named.saturating_sub(1);
            ctx.set(NAMERS, named);
        }
        // A caller that only undoes a name leaves the content stored.
        if named > 0 || !is_freed {
            return Ok(0);
        }
        let text = ctx.get::<Json<String>>(TEXT).await?;
        if let Some(before) = ctx.get::<Json<String>>(FOLLOWS).await? {
            // One-way: waiting would nest calls to the length of the chain.
            let call = UnnameCall::freeing(&by_content(ctx.key()));
            Target::content(&before.0, "unname").tell(&ctx, call);
        }
        ctx.clear_all();
        Ok(text.map_or(0, |text| text.0.len() as u64))
    }
}
