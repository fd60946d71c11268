//! Service for long waits: each call waits for an awakeable that an object resolves.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use std::time::Duration;

use restate_sdk::context::{Context, ContextAwakeables, ContextTimers};
use restate_sdk::errors::{HandlerError, TerminalError};
use restate_sdk::serde::Json;

use super::call::Target;
use crate::process_messages::{NumberedMessage, ProcessMessage};
use crate::wire::{InboxCall, TellCall, TurnCall, WaitMailCall, WaitTurnCall};

pub(super) struct WaitService;

#[restate_sdk::service(name = "PirnWait", client_visibility = "pub(super)")]
impl WaitService {
    /// Waits for the turn of a run in its session.
    #[handler]
    async fn turn(&self, ctx: Context<'_>, call: Json<WaitTurnCall>) -> Result<(), HandlerError> {
        let WaitTurnCall { session, run } = call.0;
        let (promise, kept) = ctx.awakeable::<Json<()>>();
        // One-way: the object answers by the promise, so it is not occupied while this call waits.
        Target::session(&session, "turn").tell(&ctx, TurnCall { run, promise });
        kept.await?;
        Ok(())
    }

    /// Waits for the end or the removal of a run.
    #[handler]
    async fn end(&self, ctx: Context<'_>, run: Json<String>) -> Result<(), HandlerError> {
        let (promise, kept) = ctx.awakeable::<Json<()>>();
        Target::run(&run.0, "await_end").tell(&ctx, promise);
        kept.await?;
        Ok(())
    }

    /// Waits for mail of a process, up to a timeout.
    #[handler]
    async fn mail(
        &self,
        ctx: Context<'_>,
        call: Json<WaitMailCall>,
    ) -> Result<Json<Vec<NumberedMessage>>, HandlerError> {
        let WaitMailCall {
            process,
            taken,
            lasts_ms,
        } = call.0;
        let (promise, mail) = ctx.awakeable::<Json<Vec<NumberedMessage>>>();
        Target::process(&process, "inbox").tell(&ctx, InboxCall { promise, taken });
        restate_sdk::select! {
            mail = mail => Ok(mail?),
            // Without a timeout, waits of processes that are gone would stay on the server.
            _ = ctx.sleep(Duration::from_millis(lasts_ms)) => Ok(Json(Vec::new()))
        }
    }

    /// Sends an input to the owner of a run and waits for the answer; none if the run has no owner.
    #[handler]
    async fn tell(&self, ctx: Context<'_>, call: Json<TellCall>) -> Result<Json<Option<String>>, HandlerError> {
        let TellCall { run, body, every_ms } = call.0;
        let carrier = async || -> Result<Option<String>, HandlerError> {
            let carrier = Target::run(&run, "carrier").ask::<_, Option<String>>(&ctx, ());
            Ok(carrier.call().await?.0)
        };
        let Some(process) = carrier().await? else {
            return Ok(Json(None));
        };
        // Created only if there is an owner, because an unused promise would stay open.
        let (promise, mut answer) = ctx.awakeable::<Json<Option<String>>>();
        let mail = ProcessMessage::Tell {
            promise,
            run: run.clone(),
            body,
        };
        Target::process(&process, "put").tell(&ctx, mail);
        // The owner may die without an answer: a periodic check of the owner ends the wait.
        loop {
            restate_sdk::select! {
                answer = &mut answer => return Ok(answer?),
                _ = ctx.sleep(Duration::from_millis(every_ms)) => {}
            }
            if carrier().await?.as_ref() != Some(&process) {
                return Ok(Json(None));
            }
        }
    }
}
