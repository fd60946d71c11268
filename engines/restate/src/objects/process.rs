//! Process object: heartbeats, claims and received messages of a process that owns runs.
//!
//! A process lives while it sends heartbeats; delayed calls of the server detect their absence. Death is final: a process that was
//! declared dead continues under another name, and owns no runs under the old one.
#![allow(
    missing_docs,
    clippy::unused_async,
    reason = "the macro generates the client in this module"
)]

use std::time::Duration;

use restate_sdk::context::{ContextAwakeables, ContextReadState, ContextWriteState, ObjectContext};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;
use serde::{Deserialize, Serialize};

use super::call::Target;
use crate::process_messages::{NumberedMessage, ProcessMessage};
use crate::wire::{BeatCall, ExpireCall, InboxCall, Ticket, WantsCall};

const LIFE: &str = "life";
const BOX: &str = "box";
const CARRIED: &str = "run ";
/// Grace period after a missed heartbeat: a claim's duration divided by this.
const GRACE: u64 = 4;
/// Maximum number of messages that wait for a process.
const MOST_MAIL: usize = 10_000;

fn carried_key(run: &str, epoch: u64) -> String {
    format!("{CARRIED}{epoch} {run}")
}

/// Parses the run and the epoch from the key of a claim.
fn carried_of(key: &str) -> Option<(&str, u64)> {
    let (epoch, run) = key.strip_prefix(CARRIED)?.split_once(' ')?;
    Some((run, epoch.parse().ok()?))
}

#[derive(Default, Serialize, Deserialize)]
struct Inbox {
    next: u64,
    mail: Vec<NumberedMessage>,
    /// Promise with which the process waits for messages.
    promise: Option<String>,
}

pub(super) struct ProcessObject;

#[restate_sdk::object(name = "PirnProcess", client_visibility = "pub(super)")]
impl ProcessObject {
    /// Records a heartbeat. Returns false if the process is dead or closed.
    #[handler]
    async fn beat(&self, ctx: ObjectContext<'_>, call: Json<BeatCall>) -> Result<bool, HandlerError> {
        let beats = match ctx.get::<u64>(LIFE).await? {
            Some(beats) => beats + 1,
            None if call.0.is_first => 0,
            // The object was cleared by `end`, so the process is dead.
            None => return Ok(false),
        };
        ctx.set(LIFE, beats);
        let grace_ms = call.0.lasts_ms / GRACE;
        // Each heartbeat schedules one check, which compares the number of heartbeats: no handler reads a clock.
        expires_after(&ctx, call.0.lasts_ms - grace_ms, ExpireCall { beats, grace_ms });
        Ok(true)
    }

    /// Ends a process that sent no heartbeat since the call was scheduled, after a grace period. A server that was down for longer
    /// than a claim lasts fires all of these calls at once: the grace period lets live processes send a heartbeat first.
    #[handler]
    async fn expire(&self, ctx: ObjectContext<'_>, call: Json<ExpireCall>) -> Result<(), HandlerError> {
        let ExpireCall { beats, grace_ms } = call.0;
        if ctx.get::<u64>(LIFE).await? != Some(beats) {
            return Ok(());
        }
        if grace_ms == 0 {
            return end(&ctx).await;
        }
        expires_after(&ctx, grace_ms, ExpireCall { beats, grace_ms: 0 });
        Ok(())
    }

    /// Removes a process that shuts down.
    #[handler]
    async fn close(&self, ctx: ObjectContext<'_>, _call: Json<()>) -> Result<(), HandlerError> {
        end(&ctx).await
    }

    /// Records a claim of the process.
    #[handler]
    async fn carries(&self, ctx: ObjectContext<'_>, call: Json<(String, u64)>) -> Result<(), HandlerError> {
        let (run, epoch) = call.0;
        if ctx.get::<u64>(LIFE).await?.is_some() {
            ctx.set(&carried_key(&run, epoch), 1);
        } else {
            // The claim was made after the death of the process and must end at once.
            expired(&ctx, &run, epoch);
        }
        Ok(())
    }

    /// Deletes ended claims.
    #[handler]
    async fn drops(&self, ctx: ObjectContext<'_>, call: Json<Vec<(String, u64)>>) -> Result<(), HandlerError> {
        for (run, epoch) in call.0 {
            ctx.clear(&carried_key(&run, epoch));
        }
        Ok(())
    }

    #[handler]
    async fn put(&self, ctx: ObjectContext<'_>, mail: Json<ProcessMessage>) -> Result<(), HandlerError> {
        // Both reads are sent before the first is awaited: one round trip.
        let (life, inbox) = (ctx.get::<u64>(LIFE), ctx.get::<Json<Inbox>>(BOX));
        let is_dead = life.await?.is_none();
        let mut inbox = inbox.await?.map(|inbox| inbox.0).unwrap_or_default();
        // A process that takes no messages must not grow without bound, nor prevent other processes from executing runs.
        if is_dead || inbox.mail.len() >= MOST_MAIL {
            return_mail(&ctx, mail.0);
            return Ok(());
        }
        if let ProcessMessage::Run(given) = &mail.0 {
            // In the same call as the message, so that a run in the mail expires with the process.
            ctx.set(&carried_key(&given.run, given.epoch), 1);
        }
        inbox.next += 1;
        inbox.mail.push(NumberedMessage {
            number: inbox.next,
            mail: mail.0,
        });
        // A promise can be resolved once.
        if let Some(promise) = inbox.promise.take() {
            ctx.resolve_awakeable(&promise, Json(inbox.mail.clone()));
        }
        ctx.set(BOX, Json(inbox));
        Ok(())
    }

    /// Resolves the promise with the messages after number `taken`, as soon as there are any.
    #[handler]
    async fn inbox(&self, ctx: ObjectContext<'_>, call: Json<InboxCall>) -> Result<(), HandlerError> {
        let InboxCall { promise, taken } = call.0;
        if ctx.get::<u64>(LIFE).await?.is_none() {
            // A dead process gets no answer. Its wait ends by the timeout.
            return Ok(());
        }
        let mut inbox = inbox(&ctx).await?;
        // Messages are retained until they are confirmed, because the answer that contains them may be lost.
        inbox.mail.retain(|mail| mail.number > taken);
        // The earlier wait has timed out or was repeated.
        inbox.promise = None;
        if inbox.mail.is_empty() {
            inbox.promise = Some(promise);
        } else {
            ctx.resolve_awakeable(&promise, Json(inbox.mail.clone()));
        }
        ctx.set(BOX, Json(inbox));
        Ok(())
    }
}

fn expires_after(ctx: &ObjectContext<'_>, ms: u64, call: ExpireCall) {
    let expire = Target::process(ctx.key(), "expire").ask::<_, ()>(ctx, call);
    drop(expire.send_after(Duration::from_millis(ms)));
}

async fn inbox(ctx: &ObjectContext<'_>) -> Result<Inbox, HandlerError> {
    Ok(ctx
        .get::<Json<Inbox>>(BOX)
        .await?
        .map(|inbox| inbox.0)
        .unwrap_or_default())
}

fn expired(ctx: &ObjectContext<'_>, run: &str, epoch: u64) {
    let ticket = Ticket {
        process: ctx.key().to_owned(),
        epoch,
    };
    Target::run(run, "expire").tell(ctx, ticket);
}

/// Returns undeliverable mail: a run is offered to others, an input is answered with none.
fn return_mail(ctx: &ObjectContext<'_>, mail: ProcessMessage) {
    match mail {
        ProcessMessage::Run(given) => expired(ctx, &given.run, given.epoch),
        ProcessMessage::Nothing => {}
        ProcessMessage::Tell { promise, .. } => ctx.resolve_awakeable(&promise, Json(None::<String>)),
    }
}

async fn end(ctx: &ObjectContext<'_>) -> Result<(), HandlerError> {
    let nothing = WantsCall {
        process: ctx.key().to_owned(),
        runs: 0,
    };
    // Removes the process from the queue, which would assign further runs to it.
    Target::queue("want").tell(ctx, nothing);
    for key in ctx.get_keys().await? {
        if let Some((run, epoch)) = carried_of(&key) {
            expired(ctx, run, epoch);
        }
    }
    // Runs in the mail are among the claims, which `put` recorded.
    let mail = inbox(ctx).await?.mail.into_iter();
    for told in mail.filter(|waiting| matches!(waiting.mail, ProcessMessage::Tell { .. })) {
        return_mail(ctx, told.mail);
    }
    // Also the life sign: its absence is what makes the death final.
    ctx.clear_all();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_owned_run_contains_its_claim() {
        assert_eq!(carried_of(&carried_key("a run 2", 17)), Some(("a run 2", 17)));
        assert_eq!((carried_of(LIFE), carried_of(BOX)), (None, None));
    }
}
