//! A thread that stands: between its turns, without a mailbox of its own.
//!
//! 1. Most threads wait for time, for a join or for a called workflow. None of that comes from far away: a timer and the
//!    supervisor live on the thread's own arbiter, and give it its turn in place. Nothing is sent, no task is woken.
//! 2. Once somebody else may answer (a model, a tool, work, an event, a shared conversation) it has a mailbox and a task
//!    of its own, and keeps them to its end.
//! 3. A turn in place is contained like any other: after a panic the thread is asked nothing more, and its supervisor
//!    hears what is known of it.
//! 4. A timer does not keep a thread alive: it ends with its supervisor at the latest.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use actix::Addr;
use actix::dev::channel::{AddressReceiver, AddressSender, channel};
use pirn_core::thread::{EffectId, Input, Outcome};

use super::{Ended, ThreadActor, ThreadMsg, Turn};
use crate::contain::{Exit, contained, start_contained_on};
use crate::run::RunShared;
use crate::supervisor::{SupervisorMsg, ThreadNo};

/// Messages that a mailbox keeps before it tells senders to wait; nobody here waits.
const MAILBOX: usize = 16;

/// Where a thread that has begun is found.
pub(crate) struct Standing(RefCell<At>);

enum At {
    /// Here, between two turns.
    Here(Box<ThreadActor>),
    /// In its mailbox.
    Mailbox(Addr<ThreadActor>),
    /// Nowhere: it takes its turn now, or has ended.
    Away,
}

/// What came of a turn in place.
pub(crate) enum Came {
    /// The thread waits, and is found here.
    Waits(Rc<Standing>),
    Ended(Ended),
    /// It panicked.
    Broke {
        exit: Exit,
        known: Option<Box<Ended>>,
    },
    /// There was nobody to take it.
    Nothing,
}

/// How a timer reaches its thread.
pub(crate) enum Alarm {
    Standing(Weak<Standing>),
    Mailbox(Addr<ThreadActor>),
}

impl Alarm {
    /// The time has come.
    pub(super) fn ring(self, effect: EffectId) {
        let message = ThreadMsg::Answer {
            effect,
            outcome: Outcome::Elapsed,
        };
        match self {
            Self::Mailbox(address) => address.do_send(message),
            Self::Standing(standing) => {
                if let Some(standing) = standing.upgrade() {
                    standing.ring(message);
                }
            }
        }
    }
}

impl Standing {
    /// The first turn of a thread that was told `mail` before it. What it leaves behind is only gathered where somebody
    /// `takes_over`. One that ends and has nothing that may panic when it goes is handed back: another thread may have
    /// its place.
    pub(crate) fn first_turn(
        actor: Box<ThreadActor>,
        mail: Vec<ThreadMsg>,
        takes_over: bool,
    ) -> (Came, Option<Box<ThreadActor>>) {
        let mut turn = InPlace::of(None, takes_over);
        let mut actor = Some(actor);
        let over = take_turn(&mut actor, &mut turn, |actor, turn| {
            for message in mail {
                actor.take(message, turn);
            }
            actor.drive(Input::Start, turn);
        });
        match over {
            Some(Came::Ended(ended)) => (Came::Ended(ended), actor),
            Some(came) => (came, None),
            None => (actor.map_or(Came::Nothing, |actor| turn.stand(actor)), None),
        }
    }

    /// Gives the thread a message, in this turn where it stands here.
    pub(crate) fn turn(self: &Rc<Self>, message: ThreadMsg) -> Came {
        let at = self.0.replace(At::Away);
        let actor = match at {
            At::Here(actor) => actor,
            At::Mailbox(address) => {
                address.do_send(message);
                self.0.replace(At::Mailbox(address));
                return Came::Nothing;
            }
            At::Away => return Came::Nothing,
        };
        let mut turn = InPlace::of(Some(Rc::clone(self)), true);
        let mut actor = Some(actor);
        let over = take_turn(&mut actor, &mut turn, |actor, turn| actor.take(message, turn));
        over.unwrap_or_else(|| actor.map_or(Came::Nothing, |actor| turn.stand(actor)))
    }

    /// Its mailbox, where it has one.
    pub(crate) fn mailbox(&self) -> Option<Addr<ThreadActor>> {
        match &*self.0.borrow() {
            At::Mailbox(address) => Some(address.clone()),
            At::Here(_) | At::Away => None,
        }
    }

    /// A turn that nobody but a timer gives: what the supervisor is to know of it, it is sent.
    fn ring(self: &Rc<Self>, message: ThreadMsg) {
        let whose = match &*self.0.borrow() {
            At::Here(actor) => Some((Rc::clone(&actor.run), actor.no)),
            At::Mailbox(_) | At::Away => None,
        };
        let came = self.turn(message);
        let Some((run, thread)) = whose else { return };
        match came {
            Came::Waits(_) | Came::Nothing => {}
            Came::Ended(ended) => {
                let ended = Box::new(ended);
                run.supervisor.do_send(SupervisorMsg::Ended { thread, ended });
            }
            Came::Broke { exit, known } => run.supervisor.do_send(SupervisorMsg::Exited { thread, exit, known }),
        }
    }
}

/// Takes a turn, contained. Where nothing follows, what came of it is returned, and the thread is dropped in its place
/// unless that cannot panic.
fn take_turn(
    place: &mut Option<Box<ThreadActor>>,
    turn: &mut InPlace,
    take: impl FnOnce(&mut ThreadActor, &mut InPlace),
) -> Option<Came> {
    let actor = place.as_mut()?;
    if let Err(exit) = contained(|| take(actor, turn)) {
        let known = actor.known();
        // Where its end panics too, the first panic is the one to tell.
        let _: Result<(), Exit> = contained(|| *place = None);
        return Some(Came::Broke { exit, known });
    }
    let ended = turn.ended.take()?;
    if !actor.is_plain()
        && let Err(exit) = contained(|| *place = None)
    {
        tracing::error!(?exit, "a thread's end panicked");
    }
    Some(Came::Ended(ended))
}

/// A turn that a thread takes without a mailbox. One is made when somebody else is to answer later.
struct InPlace {
    standing: Option<Rc<Standing>>,
    mailbox: Option<(AddressSender<ThreadActor>, AddressReceiver<ThreadActor>)>,
    takes_over: bool,
    ended: Option<Ended>,
}

impl InPlace {
    fn of(standing: Option<Rc<Standing>>, takes_over: bool) -> Self {
        Self {
            standing,
            mailbox: None,
            takes_over,
            ended: None,
        }
    }

    fn standing(&mut self) -> &Rc<Standing> {
        self.standing
            .get_or_insert_with(|| Rc::new(Standing(RefCell::new(At::Away))))
    }

    /// The thread waits until its next turn.
    fn stand(mut self, mut actor: Box<ThreadActor>) -> Came {
        // A thread that waits has no room for what it may never need.
        actor.spare = None;
        let at = match self.mailbox.take() {
            None => At::Here(actor),
            Some((sender, mail)) => {
                let (thread, supervisor) = (actor.no, Arc::clone(&actor.run.supervisor));
                let host = actor.run.host.clone();
                start_contained_on(&host, mail, *actor, move |exit| {
                    if !matches!(exit, Exit::Stopped) {
                        supervisor.do_send(SupervisorMsg::Exited {
                            thread,
                            exit,
                            known: None,
                        });
                    }
                });
                At::Mailbox(Addr::new(sender))
            }
        };
        let standing = Rc::clone(self.standing());
        standing.0.replace(at);
        Came::Waits(standing)
    }
}

impl Turn for InPlace {
    fn address(&mut self) -> Addr<ThreadActor> {
        let (sender, _) = self.mailbox.get_or_insert_with(|| channel(MAILBOX));
        Addr::new(sender.clone())
    }

    fn alarm(&mut self) -> Alarm {
        match &self.mailbox {
            Some((sender, _)) => Alarm::Mailbox(Addr::new(sender.clone())),
            None => Alarm::Standing(Rc::downgrade(self.standing())),
        }
    }

    fn takes_over(&self) -> bool {
        self.takes_over
    }

    fn end(&mut self, _run: &RunShared, _thread: ThreadNo, ended: Ended) {
        self.ended = Some(ended);
    }
}
