//! Run object: records and head of a run, and the commands on it.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use restate_sdk::context::{
    ContextAwakeables, ContextReadState, ContextSideEffects, ContextWriteState, ObjectContext, RunFuture,
    SharedObjectContext,
};
use restate_sdk::errors::HandlerError;
use restate_sdk::serde::Json;
use tokio::sync::Mutex;

use super::call::Target;
use crate::head::Head;
use crate::keys;
use crate::open_calls::{OpenCallEvent, OpenCalls, Place};
use crate::process_messages::{ClaimReply, ClaimedRun, ProcessMessage, RunSnapshot};
use crate::wire::{
    CommitCall, CommitContent, CommitReply, ForkReply, JournalRecord, NameCall, NameReply, NotClaimed, OfferCall,
    Refusal, ReleaseCall, RemovedReply, SessionCall, SessionWriteCall, SessionWriteReply, StartCall, Ticket,
    UnnameCall, by_content, by_run, by_session,
};

/// Maximum total size of the first commit's contents that the run object stores a copy of.
const BEGUN_BYTES: usize = 8 << 10;
/// Limits of the commits that one call of `own` executes, because a repeated attempt executes them again.
const MOST_COMMITS: usize = 1_000;
const MOST_COMMIT_BYTES: usize = 4 << 20;
/// Delay before a run is offered to all processes because the process of its call of `own` did not take it.
const UNTAKEN_MS: u64 = 1_000;
/// Promises that are resolved at the end of the run.
const ENDS: &str = "ends";

pub(super) struct RunObject {
    pub(super) open: Arc<OpenCalls>,
}

/// Place of the present attempt of a call of `own`.
type CallPlace = Arc<Mutex<Option<Place>>>;

/// Reason for the end of a call of `own`.
enum OwnEnd {
    /// The run has ended, or the process has lost its claim.
    Ended,
    /// The process owns the run, and commits by separate calls.
    Owned,
    /// The process did not take over the run.
    Untaken,
}

#[restate_sdk::object(name = "PirnRun", client_visibility = "pub(super)")]
impl RunObject {
    /// Executes a commit atomically.
    #[handler]
    async fn commit(&self, ctx: ObjectContext<'_>, call: Json<CommitCall>) -> Result<Json<CommitReply>, HandlerError> {
        commit(&ctx, call.0).await
    }

    /// Executes a commit of a small run: the server sends the run's state with the call.
    #[handler]
    async fn commit_little(
        &self,
        ctx: ObjectContext<'_>,
        call: Json<CommitCall>,
    ) -> Result<Json<CommitReply>, HandlerError> {
        commit(&ctx, call.0).await
    }

    #[handler]
    async fn claim(&self, ctx: ObjectContext<'_>, process: Json<String>) -> Result<Json<ClaimReply>, HandlerError> {
        let claimed = claimed(&ctx, &process.0).await?;
        if let Ok(given) = &claimed {
            // The process object must have the claim in its list, so that the claim expires when the process dies.
            Target::process(&process.0, "carries").tell(&ctx, (given.run.clone(), given.epoch));
        }
        Ok(Json(claimed))
    }

    /// Claims the run for a process that the queue has chosen. The process is notified by mail.
    #[handler]
    async fn assign(&self, ctx: ObjectContext<'_>, process: Json<String>) -> Result<(), HandlerError> {
        assign(&ctx, &process.0).await
    }

    /// Assigns a small run: the server sends the run's state with the call.
    #[handler]
    async fn assign_little(&self, ctx: ObjectContext<'_>, process: Json<String>) -> Result<(), HandlerError> {
        assign(&ctx, &process.0).await
    }

    /// Claims the run for the process that executes this call, and then executes the commits of that process while it makes
    /// them in close succession. Without a place in that process, or after a release before the first commit, the run is offered
    /// to all processes.
    #[handler]
    async fn own(&self, ctx: ObjectContext<'_>, _call: Json<()>) -> Result<(), HandlerError> {
        own(&ctx, &self.open).await
    }

    #[handler]
    async fn release(&self, ctx: ObjectContext<'_>, call: Json<ReleaseCall>) -> Result<(), HandlerError> {
        let call = call.0;
        give_up(&ctx, &call.ticket, call.is_offered.then_some(call.after_ms)).await
    }

    /// Ends the claim of a dead process.
    #[handler]
    async fn expire(&self, ctx: ObjectContext<'_>, ticket: Json<Ticket>) -> Result<(), HandlerError> {
        give_up(&ctx, &ticket.0, Some(0)).await
    }

    /// Returns the process that owns the run.
    #[handler]
    async fn carrier(
        &self,
        ctx: SharedObjectContext<'_>,
        _call: Json<()>,
    ) -> Result<Json<Option<String>>, HandlerError> {
        let head = ctx.get::<Json<Head>>(keys::HEAD).await?;
        Ok(Json(head.and_then(|head| head.0.carrier)))
    }

    /// Resolves the promise when the run has ended or is removed.
    #[handler]
    async fn await_end(&self, ctx: ObjectContext<'_>, promise: Json<String>) -> Result<(), HandlerError> {
        // Both reads are sent before the first is awaited: one round trip.
        let (head, ends) = (ctx.get::<Json<Head>>(keys::HEAD), ctx.get::<Json<Vec<String>>>(ENDS));
        let is_over = head.await?.is_none_or(|head| head.0.is_hidden || head.0.is_final());
        if is_over {
            ctx.resolve_awakeable(&promise.0, Json(()));
            return Ok(());
        }
        let mut ends = ends.await?.map(|ends| ends.0).unwrap_or_default();
        ends.push(promise.0);
        ctx.set(ENDS, Json(ends));
        Ok(())
    }

    /// Forks another run from this one.
    #[handler]
    async fn fork(&self, ctx: ObjectContext<'_>, step: Json<u64>) -> Result<Json<ForkReply>, HandlerError> {
        let Some(mut head) = head(&ctx).await?.filter(|head| !head.is_hidden) else {
            let missing = Refusal::NoSuchRun(ctx.key().to_owned());
            return Ok(Json(ForkReply::Refused(missing)));
        };
        let reply = head.fork(step.0);
        ctx.set(keys::HEAD, Json(head));
        Ok(Json(reply))
    }

    /// Releases the base after the removal of a fork. Returns the number of bytes freed.
    #[handler]
    async fn unfork(&self, ctx: ObjectContext<'_>, _call: Json<()>) -> Result<u64, HandlerError> {
        let Some(mut head) = head(&ctx).await? else {
            return Ok(0);
        };
        head.forks = head.forks.saturating_sub(1);
        // The last fork of a removed run was removed, so its records have no reader.
        if head.is_hidden && head.forks == 0 {
            return erase(&ctx, head).await;
        }
        ctx.set(keys::HEAD, Json(head));
        Ok(0)
    }

    #[handler]
    async fn remove(&self, ctx: ObjectContext<'_>, _call: Json<()>) -> Result<Json<RemovedReply>, HandlerError> {
        let Some(mut head) = head(&ctx).await?.filter(|head| !head.is_hidden) else {
            return Ok(Json(RemovedReply::default()));
        };
        if let Some(ticket) = head.ticket() {
            // The owner does not report this claim, because it is not notified of the removal.
            Target::process(&ticket.process, "drops").tell(&ctx, vec![(head.id.clone(), ticket.epoch)]);
        }
        over(&ctx, &mut head).await?;
        head.is_hidden = true;
        if head.forks == 0 {
            let bytes = erase(&ctx, head).await?;
            return Ok(Json(RemovedReply { runs: 1, bytes }));
        }
        for key in ctx.get_keys().await? {
            // A hidden run retains its records for its forks, but must not be woken.
            if key.starts_with(keys::TIMERS) {
                ctx.clear(&key);
            }
        }
        ctx.set(keys::HEAD, Json(head));
        Ok(Json(RemovedReply { runs: 1, bytes: 0 }))
    }
}

async fn commit(ctx: &ObjectContext<'_>, call: CommitCall) -> Result<Json<CommitReply>, HandlerError> {
    let mut kept = head(ctx).await?;
    let reply = made(ctx, &mut kept, &call).await?;
    Ok(Json(reply))
}

/// Executes a commit on the run with this head, and changes the head. A refused commit changes nothing.
async fn made(
    ctx: &ObjectContext<'_>,
    kept: &mut Option<Head>,
    call: &CommitCall,
) -> Result<CommitReply, HandlerError> {
    // Resent because its answer was lost: answer again, change nothing.
    if let Some(made) = kept.as_ref().filter(|head| head.has_made(call)) {
        let (steps, epoch) = (made.steps, None);
        return Ok(CommitReply::Done { steps, epoch });
    }
    let before = match &call.start {
        // Hidden runs count: their forks name them by this id.
        Some(_) if kept.is_some() => Err(Refusal::RunExists),
        Some(start) => begin(ctx, start).await?,
        None => match kept.as_ref().filter(|head| !head.is_hidden) {
            Some(head) => head.admits(call).map(|()| head.clone()),
            None => Err(Refusal::NoSuchRun(ctx.key().to_owned())),
        },
    };
    let mut head = match before {
        Ok(head) => head,
        Err(refusal) => {
            if let Some(start) = &call.start
                && let Some(by) = &start.namer
            {
                unname_start(ctx, start, by);
            }
            return Ok(CommitReply::Refused(refusal));
        }
    };
    let mut naming = NamedContents::default();
    if let Err(refusal) = name_all(ctx, call, &head, &mut naming).await? {
        // Names of a refused commit would retain contents for ever.
        naming.undo(ctx);
        if let Some(base) = call.start.as_ref().and_then(|start| start.base.as_ref()) {
            // `begin` has counted the fork.
            Target::run(&base.run, "unfork").tell(ctx, ());
        }
        return Ok(CommitReply::Refused(refusal));
    }
    keep_texts(ctx, call, &head).await?;
    // Nothing is refused below: the writes start here.
    for (step, record) in (head.steps + 1..).zip(&call.records) {
        ctx.set(&keys::record(step), Json(record.clone()));
    }
    for (number, name) in (head.names..).zip(&call.names) {
        ctx.set(&keys::name(number), Json(name.clone()));
    }
    for timer in &call.timers {
        let key = keys::timer(timer.due, &timer.effect);
        if timer.is_set {
            ctx.set(&key, 1_u64);
        } else {
            ctx.clear(&key);
        }
    }
    if let Some(snapshot) = &call.snapshot {
        ctx.set(keys::SNAPSHOT, Json(snapshot.clone()));
    }
    // Only for a run without an owner: a process that executes the run it starts has the contents already.
    if call.start.as_ref().is_some_and(|start| start.carrier.is_none()) {
        ctx.set(keys::BEGUN, Json(begun_texts(call)));
    }
    head.take(call);
    // After `take`, because it needs the new status, and before the head is written, because it may end the claim.
    stand(ctx, &mut head, call).await?;
    let epoch = call.start.is_some().then(|| head.ticket().map(|ticket| ticket.epoch));
    let steps = head.steps;
    ctx.set(keys::HEAD, Json(head.clone()));
    *kept = Some(head);
    Ok(CommitReply::Done {
        steps,
        epoch: epoch.flatten(),
    })
}

/// Removes the names that a refused start has made before it was sent.
fn unname_start(ctx: &ObjectContext<'_>, start: &StartCall, by: &str) {
    for hash in start.named().collect::<BTreeSet<_>>() {
        Target::content(hash, "unname").tell(ctx, UnnameCall::freeing(by));
    }
}

/// Executes the call [`RunObject::own`].
async fn own(ctx: &ObjectContext<'_>, open: &Arc<OpenCalls>) -> Result<(), HandlerError> {
    // Of this attempt. A repeated attempt reads the events of former attempts from the journal and has no place, so its first new
    // event is `Idle`.
    let place = CallPlace::default();
    let (open, run, reserved) = (Arc::clone(open), ctx.key().to_owned(), Arc::clone(&place));
    let accepted = ctx.run(move || async move {
        let (accepted, process) = open.accept(&run).unzip();
        *reserved.lock().await = accepted;
        Ok(Json(process.map(|process| process.to_string())))
    });
    let Json(process) = accepted.name("accept").await?;
    let Some(process) = process else {
        if let Some(head) = head(ctx).await? {
            Target::queue("offer").tell(ctx, offer(&head));
        }
        return Ok(());
    };
    // Otherwise it has ended or has an owner.
    let Ok(given) = claimed(ctx, &process).await? else {
        return Ok(());
    };
    let ticket = Ticket {
        process,
        epoch: given.epoch,
    };
    match commits(ctx, &place, &ticket, *given).await {
        Ok(OwnEnd::Ended) => Ok(()),
        Ok(OwnEnd::Untaken) => give_up(ctx, &ticket, Some(UNTAKEN_MS)).await,
        // After an error, such as a cancelled call, the process makes the commit again by a separate call.
        Ok(OwnEnd::Owned) | Err(_) => {
            // The process object must have the claim in its list, so that the claim expires when the process dies.
            Target::process(&ticket.process, "carries").tell(ctx, (ctx.key().to_owned(), ticket.epoch));
            Ok(())
        }
    }
}

/// Executes the commits of the run's owner until it pauses.
async fn commits(
    ctx: &ObjectContext<'_>,
    place: &CallPlace,
    ticket: &Ticket,
    given: ClaimedRun,
) -> Result<OwnEnd, HandlerError> {
    let mut kept = head(ctx).await?;
    let (mut given, mut bytes) = (Some(given), 0);
    for _ in 0..MOST_COMMITS {
        let (at, process, given) = (Arc::clone(place), ticket.process.clone(), given.take());
        let next = ctx.run(move || async move {
            let event = match &mut *at.lock().await {
                Some(place) => place.next(&process, given).await,
                None if given.is_some() => OpenCallEvent::Refused,
                None => OpenCallEvent::Idle,
            };
            Ok(Json(event))
        });
        let reply = match next.name("commit").await?.0 {
            OpenCallEvent::Commit(call) => {
                bytes += call.bytes();
                Some(made(ctx, &mut kept, &call).await?)
            }
            OpenCallEvent::Read => None,
            OpenCallEvent::Idle => return Ok(OwnEnd::Owned),
            OpenCallEvent::Refused => return Ok(OwnEnd::Untaken),
        };
        let is_ended = kept.as_ref().and_then(Head::ticket).as_ref() != Some(ticket);
        if is_ended {
            // Acknowledged after the writes above, so a reader who knows of the end finds the run ended.
            ctx.run(|| async { Ok(()) }).name("written").await?;
        }
        if let Some(place) = &mut *place.lock().await {
            place.answer(reply);
        }
        if is_ended {
            return Ok(OwnEnd::Ended);
        }
        if bytes > MOST_COMMIT_BYTES {
            break;
        }
    }
    Ok(OwnEnd::Owned)
}

async fn head(ctx: &ObjectContext<'_>) -> Result<Option<Head>, HandlerError> {
    Ok(ctx.get::<Json<Head>>(keys::HEAD).await?.map(|head| head.0))
}

async fn assign(ctx: &ObjectContext<'_>, process: &str) -> Result<(), HandlerError> {
    let mail = match claimed(ctx, process).await? {
        Ok(given) => ProcessMessage::Run(given),
        // The process counts what it requested, so it needs an answer for every assignment.
        Err(NotClaimed::Held(_) | NotClaimed::NoSuchRun | NotClaimed::Ended) => ProcessMessage::Nothing,
    };
    Target::process(process, "put").tell(ctx, mail);
    Ok(())
}

/// Creates the queue entry of a run without an owner.
fn offer(head: &Head) -> OfferCall {
    OfferCall {
        run: head.id.clone(),
        is_little: head.is_little(),
    }
}

/// Claims the run for a process and returns the state needed to resume it.
async fn claimed(ctx: &ObjectContext<'_>, process: &str) -> Result<ClaimReply, HandlerError> {
    // Both reads are sent before the first is awaited: one round trip.
    let (head, begun) = (
        ctx.get::<Json<Head>>(keys::HEAD),
        ctx.get::<Json<Vec<CommitContent>>>(keys::BEGUN),
    );
    let (head, begun) = (head.await?, begun.await?);
    let Some(Json(mut head)) = head else {
        return Ok(Err(NotClaimed::NoSuchRun));
    };
    let epoch = match head.claim(process) {
        Ok(epoch) => epoch,
        Err(refused) => return Ok(Err(refused)),
    };
    ctx.set(keys::HEAD, Json(head.clone()));
    let mut given = ClaimedRun {
        run: ctx.key().to_owned(),
        epoch,
        kept: None,
    };
    if head.is_little() {
        let names: Vec<String> = (0..head.names).map(keys::name).collect();
        let records: Vec<String> = (1..=head.steps).map(keys::record).collect();
        let names: Vec<_> = names.iter().map(|key| ctx.get::<Json<String>>(key)).collect();
        // All reads are sent before the first is awaited.
        let records: Vec<_> = records.iter().map(|key| ctx.get::<Json<JournalRecord>>(key)).collect();
        let mut kept = RunSnapshot {
            head,
            names: Vec::new(),
            records: Vec::new(),
            texts: begun.map(|texts| texts.0).unwrap_or_default(),
        };
        for name in names {
            kept.names.extend(name.await?.map(|name| name.0));
        }
        for record in records {
            kept.records.extend(record.await?.map(|record| record.0));
        }
        given.kept = Some(kept);
    }
    Ok(Ok(Box::new(given)))
}

/// Selects the contents of a first commit that the run object copies, for the process that will claim it.
fn begun_texts(call: &CommitCall) -> Vec<CommitContent> {
    let mut left = BEGUN_BYTES;
    let small = call.contents.iter().filter(|content| {
        let fits = content.text.len() <= left;
        // A content that does not fit is skipped, and smaller ones behind it may still fit.
        left -= if fits { content.text.len() } else { 0 };
        fits
    });
    small.cloned().collect()
}

async fn begin(ctx: &ObjectContext<'_>, start: &StartCall) -> Result<Result<Head, Refusal>, HandlerError> {
    let mut ancestors = 0;
    if let Some(base) = &start.base {
        let forked = Target::run(&base.run, "fork").ask::<_, ForkReply>(ctx, base.step);
        match forked.call().await?.0 {
            ForkReply::Done { ancestors: found } => ancestors = found,
            ForkReply::Refused(refusal) => return Ok(Err(refusal)),
        }
    }
    Ok(Ok(Head::begun(ctx.key(), start, ancestors)))
}

/// Contents that a commit has named so far, to be undone if the commit is refused.
#[derive(Default)]
struct NamedContents(Vec<(String, String)>);

impl NamedContents {
    /// Names the stored ones of these contents. Returns the first hash that is not stored.
    async fn name(
        &mut self,
        ctx: &ObjectContext<'_>,
        hashes: &[String],
        by: &str,
    ) -> Result<Option<String>, HandlerError> {
        let ask = |hash: &String| {
            let call = NameCall {
                text: None,
                follows: None,
                by: Some(by.to_owned()),
            };
            Target::content(hash, "name").ask::<_, NameReply>(ctx, call).call()
        };
        // All calls are sent before the first is awaited.
        let asked: Vec<_> = hashes.iter().map(ask).collect();
        let mut missing = None;
        for (hash, named) in hashes.iter().zip(asked) {
            match named.await?.0 {
                // The loop continues, because the other calls are sent already and their names may have to be undone.
                NameReply::Missing => missing = missing.or_else(|| Some(hash.clone())),
                // Named before this commit, so an undo must not remove the name.
                NameReply::Known => {}
                NameReply::Named => self.0.push((hash.clone(), by.to_owned())),
            }
        }
        Ok(missing)
    }

    /// Undoes the naming.
    fn undo(self, ctx: &ObjectContext<'_>) {
        for (hash, by) in self.0 {
            // Nothing is freed: the content was stored before this commit.
            let call = UnnameCall { by, is_freed: false };
            Target::content(&hash, "unname").tell(ctx, call);
        }
    }
}

/// Returns those of `hashes` that the commit does not supply: they must be stored already.
fn not_given(call: &CommitCall, hashes: impl IntoIterator<Item = String>) -> Vec<String> {
    let given: BTreeSet<&String> = call.contents.iter().map(|content| &content.hash).collect();
    let mut seen = BTreeSet::new();
    let hashes = hashes.into_iter().filter(|hash| !given.contains(hash));
    // Each content is called once, also if it is named twice.
    hashes.filter(|hash| seen.insert(hash.clone())).collect()
}

/// Executes all parts of a commit that may be refused after the start, in the order in which every store checks them.
async fn name_all(
    ctx: &ObjectContext<'_>,
    call: &CommitCall,
    head: &Head,
    naming: &mut NamedContents,
) -> Result<Result<(), Refusal>, HandlerError> {
    let begun = call.start.iter().filter(|start| start.namer.is_none());
    let begun = begun.flat_map(StartCall::named);
    let named = not_given(call, begun.chain(&call.names).cloned());
    if let Some(hash) = naming.name(ctx, &named, &by_run(ctx.key())).await? {
        return Ok(Err(Refusal::NoSuchContent(hash)));
    }
    for content in &call.contents {
        let followed = not_given(call, content.follows.clone());
        if let Some(hash) = naming.name(ctx, &followed, &by_content(&content.hash)).await? {
            return Ok(Err(Refusal::NoSuchContent(hash)));
        }
    }
    let Some(session) = &call.session else {
        return Ok(head.admits_snapshot(call));
    };
    // First only a check, because the write cannot be undone if something after it is refused.
    if let Err(refusal) = write(ctx, session, true).await? {
        return Ok(Err(refusal));
    }
    let by = by_session(&session.id);
    let named = not_given(call, session.contents.iter().cloned());
    if let Some(hash) = naming.name(ctx, &named, &by).await? {
        return Ok(Err(Refusal::NoSuchContent(hash)));
    }
    if let Err(refusal) = head.admits_snapshot(call) {
        return Ok(Err(refusal));
    }
    // The last step that can be refused: another run may have written the session since the check.
    let before = match write(ctx, session, false).await? {
        Ok(before) => before,
        Err(refusal) => return Ok(Err(refusal)),
    };
    for hash in before.iter().filter(|hash| !session.contents.contains(hash)) {
        let unnamed = UnnameCall {
            by: by.clone(),
            is_freed: false,
        };
        Target::content(hash, "unname")
            .ask::<_, u64>(ctx, unnamed)
            .call()
            .await?;
    }
    Ok(Ok(()))
}

/// Writes the session, or only checks its version. Returns the contents that the session named before.
async fn write(
    ctx: &ObjectContext<'_>,
    session: &SessionCall,
    is_only_checked: bool,
) -> Result<Result<Vec<String>, Refusal>, HandlerError> {
    let call = SessionWriteCall {
        write: session.clone(),
        run: ctx.key().to_owned(),
        is_only_checked,
    };
    let written = Target::session(&session.id, "write").ask::<_, SessionWriteReply>(ctx, call);
    Ok(match written.call().await?.0 {
        SessionWriteReply::Done(before) => Ok(before),
        SessionWriteReply::Moved(found) => Err(Refusal::SessionMoved {
            session: session.id.clone(),
            expected: session.follows,
            found,
        }),
    })
}

/// Stores the contents of a commit and names them for the run and the session.
async fn keep_texts(ctx: &ObjectContext<'_>, call: &CommitCall, head: &Head) -> Result<(), HandlerError> {
    let begun = if call.start.is_some() {
        head.named(Vec::new())
    } else {
        Vec::new()
    };
    let mut kept = Vec::new();
    let mut seen = BTreeSet::new();
    for content in &call.contents {
        let is_named = head.namer.is_some() && begun.contains(&content.hash) && !call.names.contains(&content.hash);
        if is_named || !seen.insert(&content.hash) {
            continue;
        }
        let of_run = begun.contains(&content.hash) || call.names.contains(&content.hash);
        let of_session = call
            .session
            .as_ref()
            .filter(|session| session.contents.contains(&content.hash));
        let by = [
            of_run.then(|| by_run(ctx.key())),
            of_session.map(|session| by_session(&session.id)),
        ];
        let by: Vec<Option<String>> = by.into_iter().flatten().map(Some).collect();
        // A content that only another content names is stored without a separate namer.
        for by in if by.is_empty() { vec![None] } else { by } {
            let call = NameCall {
                text: Some(content.text.clone()),
                follows: content.follows.clone(),
                by,
            };
            kept.push(
                Target::content(&content.hash, "name")
                    .ask::<_, NameReply>(ctx, call)
                    .call(),
            );
        }
    }
    for kept in kept {
        kept.await?;
    }
    Ok(())
}

/// Notifies the other objects of a start, a session write, or an end.
async fn stand(ctx: &ObjectContext<'_>, head: &mut Head, call: &CommitCall) -> Result<(), HandlerError> {
    if call.start.is_some() && !head.is_final() {
        if let Some(session) = &head.session {
            // Awaited, so that a run is in the order of its session when its start is answered.
            let entered = Target::session(session, "enter").ask::<_, ()>(ctx, head.id.clone());
            entered.call().await?;
        }
        if head.carrier.is_some() {
            carried(ctx, head);
        } else {
            // The worker that receives the call owns the run if it has room.
            Target::run(&head.id, "own").tell(ctx, ());
        }
    }
    if call.session.is_some() {
        // The turn ends with the write, although detached work of the run may continue.
        leave_session(ctx, head);
    }
    // Only for the commit that ends the run. Inputs that arrive later are recorded without a status.
    if head.is_final() && call.status.is_some() {
        over(ctx, head).await?;
    }
    Ok(())
}

fn leave_session(ctx: &ObjectContext<'_>, head: &Head) {
    if let Some(session) = &head.session {
        Target::session(session, "leave").tell(ctx, head.id.clone());
    }
}

fn carried(ctx: &ObjectContext<'_>, head: &Head) {
    if let Some(ticket) = head.ticket() {
        Target::process(&ticket.process, "carries").tell(ctx, (head.id.clone(), ticket.epoch));
    }
}

/// Ends the claim and resolves waiters when the run has ended or is removed. The owner itself deletes the claim from its process
/// object, in batches (`drops`).
async fn over(ctx: &ObjectContext<'_>, head: &mut Head) -> Result<(), HandlerError> {
    head.carrier = None;
    leave_session(ctx, head);
    for promise in ctx
        .get::<Json<Vec<String>>>(ENDS)
        .await?
        .map(|ends| ends.0)
        .unwrap_or_default()
    {
        ctx.resolve_awakeable(&promise, Json(()));
    }
    ctx.clear(ENDS);
    Ok(())
}

/// Ends a claim, and offers the run to other processes after a delay; without a delay it is not offered.
async fn give_up(ctx: &ObjectContext<'_>, ticket: &Ticket, after_ms: Option<u64>) -> Result<(), HandlerError> {
    // A late call for an earlier claim must not end the present one.
    let Some(mut head) = head(ctx).await?.filter(|head| head.ticket().as_ref() == Some(ticket)) else {
        return Ok(());
    };
    head.carrier = None;
    if let Some(after_ms) = after_ms.filter(|_| !head.is_final()) {
        let offered = Target::queue("offer").ask::<_, ()>(ctx, offer(&head));
        drop(offered.send_after(Duration::from_millis(after_ms)));
    }
    ctx.set(keys::HEAD, Json(head));
    Ok(())
}

/// Deletes all state of the run. Returns the number of bytes freed.
async fn erase(ctx: &ObjectContext<'_>, head: Head) -> Result<u64, HandlerError> {
    let mut more = Vec::new();
    for number in 0..head.names {
        if let Some(name) = ctx.get::<Json<String>>(&keys::name(number)).await? {
            more.push(name.0);
        }
    }
    let mut bytes = head.bytes + head.snapshot_bytes;
    let mut freed = Vec::new();
    let run = by_run(ctx.key());
    let begun_by = head.namer.as_deref().unwrap_or(&run);
    let begun = head.begun_contents().map(|hash| (begun_by, hash));
    // A set, because the start and a later commit may name one content.
    let named: BTreeSet<(&str, &String)> = begun.chain(more.iter().map(|hash| (&*run, hash))).collect();
    for (by, hash) in named {
        let call = UnnameCall::freeing(by);
        // Sent in parallel and awaited below, because the answer contains the freed bytes.
        freed.push(Target::content(hash, "unname").ask::<_, u64>(ctx, call).call());
    }
    for freed in freed {
        bytes += freed.await?.0;
    }
    if let Some(base) = &head.base {
        bytes += Target::run(&base.run, "unfork").ask::<_, u64>(ctx, ()).call().await?.0;
    }
    ctx.clear_all();
    Ok(bytes)
}
