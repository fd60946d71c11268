//! The one way for a message in a run.
//!
//! 1. The actors of a run (its supervisor, threads and conversations) live on one arbiter and share its queue: whoever is
//!    told something is told it through [`RunMachine`]'s queue, and hears things in the order sent.
//! 2. What comes from outside comes by the run's one address, [`SupervisorMsg`], or, from its own timers, by
//!    [`LocalInbox::deliver`]; either way it is put at the end of that queue, and the queue is served.
//! 3. One message is handled at a time, contained: a panic ends the actor it happens in and no other. What that actor had
//!    gathered is its supervisor's to hear; a supervisor that panics ends its run.
//! 4. After so many messages the other tasks of the arbiter have their turn, and what was told meanwhile is heard.
//!
//! Under virtual time and under an explorer all of this is the same: what such a host picks is when a timer fires, when work
//! ends, and which thread begins next.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler};
use pirn_core::Millis;
use pirn_core::run::{Begun, Effect, Message, Panic, Panicked, RunMachine, ThreadNo, ToConversation, ToSupervisor};
use pirn_core::thread::EffectId;

use crate::contain::{Exit, contained};
use crate::conversation::ConversationActor;
use crate::protocol::bus::Subscriber;
use crate::protocol::supervisor::SupervisorMsg;
use crate::run_context::RunContext;
use crate::supervisor::{RunSpec, SupervisorActor};
use crate::thread::ThreadActor;
use crate::turn::{LocalInbox, Turn};
use crate::world::RunWorld;

/// Messages that are handled before other tasks of the arbiter have their turn.
const AT_ONCE: usize = 128;

/// See the module.
pub(crate) struct LocalMailbox {
    run: Rc<RunContext>,
    actors: RefCell<Actors>,
    own: Weak<Self>,
    /// The same, as its actors know it.
    inbox: Weak<dyn LocalInbox>,
    /// It was put off to a later turn of the arbiter.
    is_put_off: Cell<bool>,
}

/// The actors of a run.
struct Actors {
    machine: RunMachine,
    supervisor: SupervisorActor,
    conversations: ConversationActor,
    /// By number: those that have something under way.
    threads: Vec<Option<Box<ThreadActor>>>,
    /// What the last step wants done; kept for its room.
    effects: Vec<Effect>,
    /// The run has begun: what was told before is heard first.
    has_begun: bool,
}

/// Who handles a message.
#[derive(Clone, Copy)]
enum Addressee {
    Supervisor,
    Thread(ThreadNo),
    /// Whose it is, and who awaits its answer.
    Conversation(ThreadNo, Option<(ThreadNo, EffectId)>),
}

impl Addressee {
    fn thread(self) -> Option<ThreadNo> {
        match self {
            Self::Supervisor => None,
            Self::Thread(thread) | Self::Conversation(thread, _) => Some(thread),
        }
    }

    fn of(message: &Message) -> Self {
        match message {
            Message::Supervisor(_) => Self::Supervisor,
            Message::Thread(thread, _) => Self::Thread(*thread),
            Message::Conversation(owner, ToConversation::Serve { thread, effect, .. }) => {
                Self::Conversation(*owner, Some((*thread, *effect)))
            }
            Message::Conversation(owner, _) => Self::Conversation(*owner, None),
        }
    }
}

/// What came of serving the queue.
enum Served {
    /// Nothing is left in it.
    All,
    /// There is more.
    Some,
    /// The supervisor panicked: the run is lost.
    Lost(String),
}

impl LocalMailbox {
    fn new(run: Rc<RunContext>, spec: RunSpec) -> Rc<Self> {
        // Most steps want one thing done.
        let mut effects = Vec::with_capacity(1);
        let (supervisor, seed) = SupervisorActor::new(&run, spec);
        let now = run.host.now();
        let begun = Begun {
            at: now,
            listening: run.listening(),
            seed,
        };
        if let Some(journal) = &run.ports().journal {
            journal.begun(&begun);
        }
        let machine = RunMachine::new(begun.at, begun.seed, &mut RunWorld::of(&run), &mut effects);
        Rc::new_cyclic(|own: &Weak<Self>| {
            let inbox: Weak<dyn LocalInbox> = own.clone();
            let mut actors = Actors {
                machine,
                supervisor,
                conversations: ConversationActor,
                threads: Vec::new(),
                effects,
                has_begun: false,
            };
            actors.carry(now, &run, &inbox);
            Self {
                run,
                inbox,
                actors: RefCell::new(actors),
                own: Weak::clone(own),
                is_put_off: Cell::new(false),
            }
        })
    }

    /// Serves the queue; the panic of a supervisor.
    fn serve(&self) -> Option<String> {
        let served = self.actors.borrow_mut().serve(&self.run, &self.inbox);
        match served {
            Served::All => None,
            Served::Some => {
                self.put_off();
                None
            }
            Served::Lost(message) => Some(message),
        }
    }

    /// Goes on in a later turn of the arbiter.
    fn put_off(&self) {
        if self.is_put_off.replace(true) {
            return;
        }
        let own = Weak::clone(&self.own);
        self.run.host.spawn(
            None,
            Box::pin(async move {
                let Some(own) = own.upgrade() else { return };
                own.is_put_off.set(false);
                if let Some(lost) = own.serve() {
                    own.run.supervisor.do_send(SupervisorMsg::Lost(lost));
                } else if own.actors.borrow().supervisor.is_over() {
                    own.run.supervisor.do_send(SupervisorMsg::Over);
                }
            }),
        );
    }
}

impl LocalInbox for LocalMailbox {
    fn deliver(&self, message: Message) {
        let Ok(mut actors) = self.actors.try_borrow_mut() else {
            // In the middle of a turn, by way of somebody's destructor: it comes in its order.
            return self.run.supervisor.do_send(SupervisorMsg::Tell(message));
        };
        self.run.tell(&mut actors.machine, message);
        drop(actors);
        if let Some(lost) = self.serve() {
            self.run.supervisor.do_send(SupervisorMsg::Lost(lost));
        } else if self.actors.borrow().supervisor.is_over() {
            self.run.supervisor.do_send(SupervisorMsg::Over);
        }
    }
}

impl Actors {
    fn serve(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Served {
        if !self.has_begun {
            return Served::All;
        }
        let now = run.host.now();
        for _ in 0..AT_ONCE {
            let Some(message) = self.machine.next_message() else {
                return Served::All;
            };
            let addressee = Addressee::of(&message);
            let _span = run
                .spans
                .as_ref()
                .map(|spans| spans.enter(addressee.thread(), &self.machine));
            if let Err(exit) = contained(|| self.handle(message, now, run, inbox))
                && let Some(lost) = self.panicked(addressee, &exit, now, run, inbox)
            {
                return Served::Lost(lost);
            }
        }
        if self.machine.is_idle() {
            Served::All
        } else {
            Served::Some
        }
    }

    /// Has the actor that a message is for handle it, and carries out what follows.
    fn handle(&mut self, message: Message, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        let mut turn = Turn {
            run,
            machine: &mut self.machine,
            inbox,
            now,
            effects: &mut self.effects,
        };
        match message {
            Message::Supervisor(message) => self.supervisor.handle(message, &mut turn),
            Message::Thread(thread, message) => match self.threads.get_mut(thread as usize) {
                Some(Some(actor)) => actor.handle(message, &mut turn),
                // It has nothing under way.
                Some(None) | None => turn.step(Message::Thread(thread, message)),
            },
            Message::Conversation(owner, message) => self.conversations.handle(owner, message, &mut turn),
        }
        self.carry(now, run, inbox);
    }

    /// Carries out what the machine wants done.
    fn carry(&mut self, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        let mut none = Vec::new();
        for effect in effects.drain(..) {
            if let Some(journal) = &run.ports().journal {
                journal.did(&run.run_id, &effect);
            }
            let mut turn = Turn {
                run,
                machine: &mut self.machine,
                inbox,
                now,
                effects: &mut none,
            };
            match effect {
                Effect::Thread { thread, effect } => thread_actor(&mut self.threads, thread).carry(effect, &mut turn),
                Effect::AwaitTriggers { thread, effect } => crate::thread::await_triggers(thread, effect, &turn),
                Effect::Drop { thread, effect } => {
                    if let Some(Some(actor)) = self.threads.get_mut(thread as usize) {
                        actor.let_go(effect);
                    }
                }
                Effect::ThreadEnded { thread } => {
                    let actor = self.threads.get_mut(thread as usize).and_then(Option::take);
                    self.supervisor.thread_ended(thread, &turn);
                    drop(actor);
                    if let Some(spans) = &run.spans {
                        spans.ended(thread);
                    }
                }
                other => self.supervisor.carry(other, &mut turn),
            }
        }
        self.effects = effects;
    }

    /// An actor panicked: whoever is to know hears of it. The supervisor's own panic is given back.
    fn panicked(
        &mut self,
        addressee: Addressee,
        exit: &Exit,
        now: Millis,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Option<String> {
        let Exit::Panicked { message } = exit else { return None };
        let of = match addressee {
            Addressee::Supervisor => return Some(message.clone()),
            Addressee::Thread(thread) => Panicked::Thread { thread, is_known: true },
            Addressee::Conversation(owner, asker) => Panicked::Conversation { owner, asker },
        };
        let told = |of| {
            let message = message.clone();
            Message::Supervisor(ToSupervisor::Panicked(Box::new(Panic { of, message })))
        };
        let machine = &mut self.machine;
        let of = match (contained(|| machine.tell(told(of))), of) {
            // What it had gathered is broken too.
            (Err(_), Panicked::Thread { thread, .. }) => {
                let of = Panicked::Thread {
                    thread,
                    is_known: false,
                };
                machine.tell(told(of));
                of
            }
            (Err(_) | Ok(()), of) => of,
        };
        run.record(machine, told(of));
        // What it had said before stays said.
        match contained(|| self.carry(now, run, inbox)) {
            Err(Exit::Panicked { message }) => Some(message),
            Ok(()) | Err(Exit::Stopped | Exit::Dropped) => None,
        }
    }
}

fn thread_actor(threads: &mut Vec<Option<Box<ThreadActor>>>, thread: ThreadNo) -> &mut ThreadActor {
    let place = thread as usize;
    if threads.len() <= place {
        if threads.is_empty() {
            threads.reserve_exact(place + 1);
        }
        threads.resize_with(place + 1, || None);
    }
    threads[place].get_or_insert_with(|| Box::new(ThreadActor::new(thread)))
}

/// A run for whoever is outside of it.
pub(crate) struct RunActor {
    run: Rc<RunContext>,
    spec: Option<Box<RunSpec>>,
    mailbox: Option<Rc<LocalMailbox>>,
}

impl RunActor {
    pub(crate) fn new(run: Rc<RunContext>, spec: RunSpec) -> Self {
        Self {
            run,
            spec: Some(Box::new(spec)),
            mailbox: None,
        }
    }

    fn mailbox(&mut self) -> Rc<LocalMailbox> {
        let Self { run, spec, mailbox } = self;
        let made = mailbox.get_or_insert_with(|| {
            let spec = spec.take().expect("a run is made once, from what it was asked to be");
            LocalMailbox::new(Rc::clone(run), *spec)
        });
        Rc::clone(made)
    }

    /// Serves the queue, and ends where nothing is left of the run.
    fn serve(&mut self, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        if let Some(lost) = mailbox.serve() {
            std::panic::resume_unwind(Box::new(lost));
        }
        if mailbox.actors.borrow().supervisor.is_over() {
            context.stop();
        }
    }
}

impl Actor for RunActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        if self.run.supervisor.is_told() {
            // What it was told already comes before its first turn; most runs were told nothing.
            self.run.supervisor.do_send(SupervisorMsg::Begin);
        } else {
            mailbox.actors.borrow_mut().has_begun = true;
            self.serve(context);
        }
    }
}

impl Handler<SupervisorMsg> for RunActor {
    type Result = ();

    fn handle(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        match message {
            SupervisorMsg::Begin => mailbox.actors.borrow_mut().has_begun = true,
            SupervisorMsg::Over => {}
            // Of a run that is over nothing more comes: dropping the subscription says so.
            SupervisorMsg::Subscribe { .. } if mailbox.actors.borrow().supervisor.is_over() => {}
            SupervisorMsg::Subscribe { mask, deliver } => {
                let run_id = Some(Arc::clone(&self.run.run_id));
                let subscriber = Subscriber { run_id, mask, deliver };
                self.run.interest.subscribe(self.run.bus(), subscriber);
            }
            SupervisorMsg::Lost(message) => std::panic::resume_unwind(Box::new(message)),
            message => {
                let machine = &mut mailbox.actors.borrow_mut().machine;
                let at = || self.run.host.wall_clock();
                if let Some(message) = message.for_machine(machine, at) {
                    self.run.tell(machine, message);
                }
            }
        }
        self.serve(context);
    }
}
