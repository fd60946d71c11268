//! Session object: the state that a session's runs pass on, and the order of their turns.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use std::collections::{BTreeMap, VecDeque};

use restate_sdk::context::{ContextAwakeables, ContextReadState, ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;
use serde::{Deserialize, Serialize};

use super::call::Target;
use crate::wire::{KeptSession, SessionWriteCall, SessionWriteReply, TurnCall, UnnameCall, by_session};

const BODY: &str = "body";
const TURNS: &str = "turns";

/// Unfinished runs of the session in order of their start. The first has the turn.
#[derive(Default, Serialize, Deserialize)]
struct Turns {
    runs: VecDeque<String>,
    /// Promises of waiting runs, by run.
    waiting: BTreeMap<String, String>,
}

pub(super) struct SessionObject;

#[restate_sdk::object(name = "PirnSession", client_visibility = "pub(super)")]
impl SessionObject {
    #[handler]
    async fn write(
        &self,
        ctx: ObjectContext<'_>,
        call: Json<SessionWriteCall>,
    ) -> Result<Json<SessionWriteReply>, HandlerError> {
        let SessionWriteCall {
            write,
            run,
            is_only_checked,
        } = call.0;
        let kept = ctx.get::<Json<KeptSession>>(BODY).await?.map(|kept| kept.0);
        let version = kept.as_ref().map_or(0, |kept| kept.version);
        if version != write.follows {
            return Ok(Json(SessionWriteReply::Moved(version)));
        }
        // The commit checks first and writes last, see `run::name_all`.
        if !is_only_checked {
            let next = KeptSession {
                version: version + 1,
                body: write.body,
                contents: write.contents,
                run,
                updated_at: write.at,
            };
            ctx.set(BODY, Json(next));
        }
        Ok(Json(SessionWriteReply::Done(
            kept.map(|kept| kept.contents).unwrap_or_default(),
        )))
    }

    /// Deletes the state. Returns false if there was none.
    #[handler]
    async fn remove(&self, ctx: ObjectContext<'_>, _call: Json<()>) -> Result<bool, HandlerError> {
        let Some(kept) = ctx.get::<Json<KeptSession>>(BODY).await? else {
            return Ok(false);
        };
        // Only the state: runs that wait for their turn stay in the line.
        ctx.clear(BODY);
        let mut freed = Vec::new();
        for hash in kept.0.contents {
            let call = UnnameCall::freeing(&by_session(ctx.key()));
            freed.push(Target::content(&hash, "unname").ask::<_, u64>(&ctx, call).call());
        }
        for freed in freed {
            freed.await?;
        }
        Ok(true)
    }

    #[handler]
    async fn enter(&self, ctx: ObjectContext<'_>, run: Json<String>) -> Result<Json<()>, HandlerError> {
        let mut turns = turns(&ctx).await?;
        // A start that is repeated must not enter twice.
        if !turns.runs.contains(&run.0) {
            turns.runs.push_back(run.0);
            ctx.set(TURNS, Json(turns));
        }
        Ok(Json(()))
    }

    #[handler]
    async fn leave(&self, ctx: ObjectContext<'_>, run: Json<String>) -> Result<(), HandlerError> {
        let mut turns = turns(&ctx).await?;
        turns.runs.retain(|waits| *waits != run.0);
        // The run may have been cancelled while it waited. Its wait ends, so that the caller is not stuck.
        if let Some(promise) = turns.waiting.remove(&run.0) {
            ctx.resolve_awakeable(&promise, Json(()));
        }
        if let Some(promise) = turns.runs.front().and_then(|next| turns.waiting.remove(next)) {
            ctx.resolve_awakeable(&promise, Json(()));
        }
        if turns.runs.is_empty() {
            // Sessions without unfinished runs leave no state behind.
            ctx.clear(TURNS);
        } else {
            ctx.set(TURNS, Json(turns));
        }
        Ok(())
    }

    /// Resolves the promise when it is the run's turn, or the run has left the session.
    #[handler]
    async fn turn(&self, ctx: ObjectContext<'_>, call: Json<TurnCall>) -> Result<(), HandlerError> {
        let TurnCall { run, promise } = call.0;
        let mut turns = turns(&ctx).await?;
        if turns.runs.front().is_none_or(|first| *first == run) || !turns.runs.contains(&run) {
            ctx.resolve_awakeable(&promise, Json(()));
            return Ok(());
        }
        turns.waiting.insert(run, promise);
        ctx.set(TURNS, Json(turns));
        Ok(())
    }
}

async fn turns(ctx: &ObjectContext<'_>) -> Result<Turns, HandlerError> {
    Ok(ctx
        .get::<Json<Turns>>(TURNS)
        .await?
        .map(|turns| turns.0)
        .unwrap_or_default())
}
