//! The one way for a message in a run.
//!
//! 1. The actors of a run (its supervisor, threads and conversations) live on one arbiter and share its queue: whoever is
//!    told something is told it through [`RunMachine`]'s queue, and hears things in the order sent.
//! 2. What comes from outside comes by the run's one address, [`SupervisorMsg`], or, from its own timers, by
//!    [`LocalInbox::deliver`]; either way it is put at the end of that queue, and the queue is served.
//! 3. One message is handled at a time, contained: a panic ends the actor it happens in and no other. What that actor had
//!    gathered is its supervisor's to hear; a supervisor that panics ends its run.
//! 4. What is told from outside is for the record, and what follows from it waits until that is kept; where nobody keeps it,
//!    nothing waits.
//! 5. After so many messages the other tasks of the arbiter have their turn, and what was told meanwhile is heard.
//!
//! 6. While much waits for the event bus, a run neither starts nor has a turn ([`Backlog`]).
//! 7. The machine of a durable run that waits long leaves memory ([`Parked`]) and comes back when it is to hear something.
//!
//! Under virtual time and under an explorer all of this is the same: what such a host picks is when a timer fires, when work
//! ends, and which thread begins next.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use actix::{Actor, ActorContext, Context, Handler};
use pirn_core::Millis;
use pirn_core::error::RunError;
use pirn_core::run::{
    AnswerRefused, Begun, Control, Effect, Fired, Message, Panic, Panicked, RunMachine, ThreadNo, ToConversation,
    ToSupervisor,
};
use pirn_core::thread::EffectId;

use crate::acknowledgements::Acknowledge;
use crate::contain::{Exit, contained};
use crate::conversation::ConversationActor;
use crate::parked::{Parked, shut_down};
use crate::protocol::bus::BusMsg;
use crate::protocol::mailbox::PutOff;
use crate::protocol::supervisor::{InteractionAnswer, SupervisorMsg};
use crate::rebuilt::{Rebuilt, Resumed};
use crate::run_context::RunContext;
use crate::supervisor::{Beginning, NewRun, RunSpec, SupervisorActor, limit_triggers};
use crate::thread::ThreadActor;
use crate::turn::{LocalInbox, Turn};
use crate::unkept::Unkept;
use crate::world::RunWorld;

/// Messages that are handled before other tasks of the arbiter have their turn.
const AT_ONCE: usize = 128;

/// Milliseconds that a run is at least quiet before it is parked.
const SHORTEST_QUIET: Millis = 1;

/// See the module.
pub(crate) struct LocalMailbox {
    run: Rc<RunContext>,
    actors: RefCell<Standing>,
    own: Weak<Self>,
    /// The same, as its actors know it.
    inbox: Weak<dyn LocalInbox>,
    /// It was put off to a later turn of the arbiter.
    is_put_off: Cell<bool>,
}

/// A run's actors, and where its machine is.
enum Standing {
    Here(Box<Actors>),
    Parked(Box<Parked>),
}

impl Standing {
    fn is_over(&self) -> bool {
        match self {
            Self::Here(actors) => actors.supervisor.is_over(),
            Self::Parked(parked) => parked.supervisor.is_over(),
        }
    }
}

/// The actors of a run.
struct Actors {
    machine: RunMachine,
    supervisor: SupervisorActor,
    conversations: ConversationActor,
    /// By number: those that have something under way.
    threads: Vec<Option<Box<ThreadActor>>>,
    /// Effects of the last step.
    effects: Vec<Effect>,
    /// None where the run is kept nowhere.
    unkept: Option<Box<Unkept>>,
    /// The run has begun: what was told before is heard first.
    has_begun: bool,
}

/// The handler of a message.
#[derive(Clone, Copy)]
enum Addressee {
    Supervisor,
    Thread(ThreadNo),
    /// Its thread, and who awaits its answer.
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

/// The result of serving the queue.
enum Served {
    /// Nothing is left in it.
    All,
    /// There is more.
    Some,
    /// The supervisor panicked: the run is lost.
    Lost(String),
}

impl LocalMailbox {
    fn new(run: Rc<RunContext>, mut spec: RunSpec) -> Rc<Self> {
        for subscription in std::mem::take(&mut spec.subscriptions) {
            run.subscribe(subscription.mask(), subscription.after, subscription.deliver);
        }
        let (supervisor, beginning) = SupervisorActor::new(spec);
        Rc::new_cyclic(|own: &Weak<Self>| {
            let inbox: Weak<dyn LocalInbox> = own.clone();
            let actors = match beginning {
                Beginning::New(new) => Actors::begin(*new, supervisor, &run, &inbox),
                Beginning::Resumed(resumed) => Actors::resume(*resumed, supervisor, &run, &inbox),
            };
            Self {
                run,
                inbox,
                actors: RefCell::new(Standing::Here(Box::new(actors))),
                own: Weak::clone(own),
                is_put_off: Cell::new(false),
            }
        })
    }

    /// Serves the queue; the panic of a supervisor.
    fn serve(&self) -> Option<String> {
        let standing = &mut *self.actors.borrow_mut();
        let Standing::Here(actors) = standing else { return None };
        let put_off = || (!self.is_put_off.replace(true)).then(|| -> Weak<dyn PutOff> { self.own.clone() });
        if !actors.machine.is_idle() && self.run.has_turn_later(put_off) {
            return None;
        }
        match actors.serve(&self.run, &self.inbox) {
            Served::All => {
                if self.run.is_to_leave() {
                    self.leave(actors);
                } else {
                    self.have_parked(actors);
                }
                None
            }
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
                if let Some(own) = own.upgrade() {
                    own.has_turn();
                }
            }),
        );
    }

    /// The run ends here, for this process, when all that it was told is kept.
    fn leave(&self, actors: &mut Actors) {
        let Some(unkept) = &actors.unkept else { return };
        if unkept.is_kept(self.run.told()) {
            actors.stop(shut_down(), &self.run);
        } else if !unkept.is_awaited() {
            actors.acknowledge(&self.run, Box::new(|_| ()));
            self.put_off();
        }
    }

    /// Has the run parked when it has been quiet for long, where it waits.
    fn have_parked(&self, actors: &mut Actors) {
        let Some(unkept) = &mut actors.unkept else { return };
        if unkept.parking.is_some() {
            return;
        }
        let Some(after) = self.run.parks_in() else { return };
        let own = Weak::clone(&self.own);
        let park = move || {
            if let Some(own) = own.upgrade() {
                own.park();
            }
        };
        unkept.parking = self.run.host.when_quiet(after.max(SHORTEST_QUIET), park);
    }

    /// The machine leaves memory, where the run has been quiet for as long as that takes.
    fn park(&self) {
        let standing = &mut *self.actors.borrow_mut();
        let Standing::Here(actors) = standing else { return };
        let Some(unkept) = &mut actors.unkept else { return };
        unkept.parking = None;
        if self.run.parks_in() != Some(0) || !actors.machine.is_idle() {
            return self.have_parked(actors);
        }
        if !unkept.is_kept(self.run.told()) {
            // What nothing waited for: it is kept, and this asked again.
            actors.acknowledge(&self.run, Box::new(|_| ()));
            self.put_off();
            return;
        }
        let (supervisor, threads) = (
            std::mem::take(&mut actors.supervisor),
            std::mem::take(&mut actors.threads),
        );
        *standing = Standing::Parked(Box::new(Parked::new(supervisor, threads)));
    }

    /// Hears a message from outside. What had waited for the machine is given back, to be heard next.
    fn hear(&self, message: SupervisorMsg) -> Vec<SupervisorMsg> {
        let standing = &mut *self.actors.borrow_mut();
        match (&mut *standing, message) {
            (Standing::Here(actors), message) => actors.hear(message, &self.run, &self.inbox),
            (Standing::Parked(parked), SupervisorMsg::Woken(Ok(machine))) => {
                let told = parked.take_told();
                *standing = Standing::Here(Box::new(Actors::woken(*machine, parked, &self.run)));
                return told;
            }
            (Standing::Parked(parked), SupervisorMsg::Woken(Err(error))) => parked.stop(error, &self.run),
            (Standing::Parked(parked), message) => parked.hear(message, &self.run),
        }
        Vec::new()
    }
}

impl PutOff for LocalMailbox {
    fn has_turn(&self) {
        self.is_put_off.set(false);
        if let Some(lost) = self.serve() {
            self.run.supervisor.do_send(SupervisorMsg::Lost(lost));
        } else if self.actors.borrow().is_over() {
            self.run.supervisor.do_send(SupervisorMsg::Over);
        }
    }
}

impl LocalInbox for LocalMailbox {
    fn deliver(&self, message: Message) {
        let mut standing = self.actors.try_borrow_mut();
        let Ok(Standing::Here(actors)) = standing.as_deref_mut() else {
            // In the middle of a turn, by way of somebody's destructor, or while the machine is away: it comes in its order.
            return self.run.supervisor.do_send(SupervisorMsg::Tell(message));
        };
        self.run.tell(&mut actors.machine, message);
        drop(standing);
        if let Some(lost) = self.serve() {
            self.run.supervisor.do_send(SupervisorMsg::Lost(lost));
        } else if self.actors.borrow().is_over() {
            self.run.supervisor.do_send(SupervisorMsg::Over);
        }
    }
}

impl Actors {
    fn of(machine: RunMachine, supervisor: SupervisorActor, effects: Vec<Effect>, is_durable: bool) -> Self {
        Self {
            machine,
            supervisor,
            conversations: ConversationActor,
            threads: Vec::new(),
            effects,
            unkept: is_durable.then(Box::default),
            has_begun: false,
        }
    }

    /// The machine is back.
    fn woken(machine: RunMachine, parked: &mut Parked, run: &RunContext) -> Self {
        Self {
            threads: std::mem::take(&mut parked.threads),
            unkept: Some(Box::new(Unkept::after(run.told()))),
            has_begun: true,
            ..Self::of(machine, std::mem::take(&mut parked.supervisor), Vec::new(), false)
        }
    }

    fn begin(new: NewRun, supervisor: SupervisorActor, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Self {
        let now = run.now();
        let begun = Begun {
            at: now,
            listening: run.listening(),
            uncarried: false,
            seed: new.seed(&run.run_id, run.supervisor.metadata(), &run.host, run.ports().run_bytes),
            settings: Vec::new(),
        };
        limit_triggers(&begun.seed.graph, run);
        run.begun(&begun);
        let mut effects = Vec::new();
        let machine = RunMachine::new(begun.at, begun.seed, &mut RunWorld::of(run), &mut effects);
        let mut actors = Self::of(machine, supervisor, effects, run.is_durable());
        actors.carry(now, run, inbox);
        actors
    }

    /// Goes on where an earlier process of the run ended: what was open there is done again, unless what the run is told
    /// first says otherwise.
    fn resume(
        resumed: Resumed,
        supervisor: SupervisorActor,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Self {
        let Resumed {
            mut rebuilt,
            told,
            journal,
        } = resumed;
        let (again, mut first) = rebuilt.events_again();
        let Rebuilt {
            mut machine,
            settings,
            open,
            answered,
            steps,
            at,
            ..
        } = rebuilt;
        run.goes_on((steps, at), settings, journal);
        first.extend(told);
        if first.is_empty() && run.has_unrecorded(&mut machine) {
            // What it was told while no process carried it is carried out by this one's configuration, which is recorded first.
            first.push(Message::Supervisor(ToSupervisor::Recovered(Vec::new())));
        }
        // Before what has fired counts.
        if let Some((_, workflow)) = machine.origin(0) {
            limit_triggers(workflow, run);
        }
        run.keep_events();
        run.bus().do_send(BusMsg::Resumed(Box::new(again)));
        // Nothing is done before it is known that nobody else has gone on with it.
        let mut actors = Self::of(machine, supervisor, Vec::new(), true);
        for (thread, requests) in answered {
            let actor = thread_actor(&mut actors.threads, thread);
            for asked in requests {
                actor.model_answered(&asked, run);
            }
        }
        for message in first {
            run.tell(&mut actors.machine, message);
        }
        let now = run.now();
        actors.effects = open.effects(now);
        actors.carry(now, run, inbox);
        actors
    }

    fn serve(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Served {
        if !self.has_begun || self.supervisor.is_over() {
            return Served::All;
        }
        run.room.borrow_mut().lend(&mut self.machine, &mut self.effects);
        let served = self.serve_queue(run, inbox);
        // What a lost run leaves behind is nobody's.
        if !matches!(served, Served::Lost(_)) {
            run.room.borrow_mut().take_back(&mut self.machine, &mut self.effects);
        }
        served
    }

    fn serve_queue(&mut self, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Served {
        let mut now = run.step_time();
        for _ in 0..AT_ONCE {
            let Some(message) = self.machine.next_message() else {
                if let Err(lost) = self.keep(now, run, inbox) {
                    return Served::Lost(lost);
                }
                if self.machine.is_idle() || self.supervisor.is_over() {
                    return Served::All;
                }
                // What was carried out may have told it more.
                now = run.step_time();
                continue;
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
        Served::Some
    }

    /// Has kept what the run was told, where something waits for that.
    fn keep(&mut self, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) -> Result<(), String> {
        let step = run.told();
        if !self.unkept.as_mut().is_some_and(|unkept| unkept.asks(step)) {
            return Ok(());
        }
        match run.keep(&mut self.machine) {
            Some(result) => self.kept(step, result, now, run, inbox),
            None => Ok(()),
        }
    }

    /// The run ends here, for this process: what is under way for it is stopped, and what waits is never told.
    fn stop(&mut self, error: RunError, run: &Rc<RunContext>) {
        if let Some(unkept) = &mut self.unkept {
            unkept.lost(&error);
        }
        self.threads.clear();
        self.supervisor.stop(error, run);
    }

    /// Carries out what waited for the steps up to this one to be kept. The panic of that is given back.
    fn kept(
        &mut self,
        step: u64,
        result: Result<(), RunError>,
        now: Millis,
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) -> Result<(), String> {
        if let Err(error) = result {
            self.stop(error, run);
            return Ok(());
        }
        if let Some(unkept) = &mut self.unkept {
            unkept.kept(step);
        }
        while let Some((at, effect)) = self.unkept.as_mut().and_then(|unkept| unkept.release(now)) {
            if let Err(Exit::Panicked { message }) = contained(|| self.carry_out(effect, (at, now), run, inbox)) {
                return Err(message);
            }
        }
        Ok(())
    }

    /// Hears a message from outside.
    fn hear(&mut self, message: SupervisorMsg, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        match message {
            SupervisorMsg::Begin => self.has_begun = true,
            SupervisorMsg::Over => {}
            SupervisorMsg::Subscribe { .. }
            | SupervisorMsg::Kept { .. }
            | SupervisorMsg::AnswerInteraction(_)
            | SupervisorMsg::AwaitKept(_)
                if self.supervisor.is_over() =>
            {
                message.refuse(None);
            }
            SupervisorMsg::AnswerInteraction(answer) => self.answer(*answer, run),
            SupervisorMsg::AwaitKept(kept) => self.acknowledge(run, kept),
            SupervisorMsg::Subscribe { mask, deliver } => run.subscribe(mask, 0, deliver),
            SupervisorMsg::Lost(message) => std::panic::resume_unwind(Box::new(message)),
            SupervisorMsg::Control(Control::Shutdown) if run.is_durable() => self.stop(shut_down(), run),
            SupervisorMsg::Closing => run.close(),
            SupervisorMsg::Kept { step, result } => {
                if let Err(lost) = self.kept(step, result, run.now(), run, inbox) {
                    std::panic::resume_unwind(Box::new(lost));
                }
            }
            SupervisorMsg::Triggered {
                sequence,
                trigger,
                then,
            } => {
                let does = then.and_then(|then| then.for_machine(&self.machine));
                let fired = ToSupervisor::Fired(Box::new(Fired::new(sequence, trigger, does)));
                run.tell(&mut self.machine, Message::Supervisor(fired));
            }
            message => {
                if let Some(message) = message.for_machine(&self.machine) {
                    run.tell(&mut self.machine, message);
                }
            }
        }
    }

    /// A person answers a question.
    fn answer(&mut self, answer: InteractionAnswer, run: &Rc<RunContext>) {
        let Some((message, taken)) = answer.check(&self.machine, run.ports().fits, run.host.wall_clock()) else {
            return;
        };
        run.tell(&mut self.machine, message);
        self.acknowledge(
            run,
            Box::new(|kept| {
                taken(kept.map_err(|error| AnswerRefused::NotKept {
                    reason: error.to_string(),
                }));
            }),
        );
    }

    /// Tells somebody once all that the run was told is durable.
    fn acknowledge(&mut self, run: &Rc<RunContext>, acknowledge: Acknowledge) {
        match &mut self.unkept {
            Some(unkept) => unkept.acknowledge(run.told(), acknowledge),
            None => acknowledge(Ok(())),
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

    /// Carries out what the machine wants done, or has it wait.
    fn carry(&mut self, now: Millis, run: &Rc<RunContext>, inbox: &Weak<dyn LocalInbox>) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            run.did(&effect);
            let effect = match &mut self.unkept {
                Some(unkept) => unkept.pass(run.told(), now, effect),
                None => Some(effect),
            };
            if let Some(effect) = effect {
                self.carry_out(effect, (now, now), run, inbox);
            }
        }
        self.effects = effects;
    }

    /// Carries out what the machine wanted done at one time, at another.
    fn carry_out(
        &mut self,
        effect: Effect,
        (at, now): (Millis, Millis),
        run: &Rc<RunContext>,
        inbox: &Weak<dyn LocalInbox>,
    ) {
        let mut none = Vec::new();
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
            other => self.supervisor.carry(other, at, &mut turn),
        }
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
        run.note_settings(machine);
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
    /// None before it is made, from what the run was asked to be.
    mailbox: Option<Rc<LocalMailbox>>,
    /// Messages delivered before that.
    told: Vec<SupervisorMsg>,
}

impl RunActor {
    pub(crate) fn new(run: Rc<RunContext>, spec: RunSpec) -> Self {
        Self {
            run,
            spec: Some(Box::new(spec)),
            mailbox: None,
            told: Vec::new(),
        }
    }

    /// The run was to begin later, and begins: what it was told before its first turn comes first.
    fn begin(&mut self, context: &mut Context<Self>) {
        let mailbox = self.mailbox();
        for message in std::mem::take(&mut self.told) {
            mailbox.hear(message);
        }
        self.hear(SupervisorMsg::Begin, context);
    }

    /// Hears a message, and what had waited for it.
    fn hear(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        let unheard = self.mailbox().hear(message);
        self.serve(context);
        for message in unheard {
            self.hear(message, context);
        }
    }

    fn mailbox(&mut self) -> Rc<LocalMailbox> {
        let Self { run, spec, mailbox, .. } = self;
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
        if mailbox.actors.borrow().is_over() {
            context.stop();
        }
    }
}

impl Actor for RunActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        if self.run.begins_later() {
            return;
        }
        let mailbox = self.mailbox();
        if self.run.supervisor.is_told() {
            // What it was told already comes before its first turn; most runs were told nothing.
            self.run.supervisor.do_send(SupervisorMsg::Begin);
        } else {
            if let Standing::Here(actors) = &mut *mailbox.actors.borrow_mut() {
                actors.has_begun = true;
            }
            self.serve(context);
        }
    }
}

impl Handler<SupervisorMsg> for RunActor {
    type Result = ();

    fn handle(&mut self, message: SupervisorMsg, context: &mut Context<Self>) {
        self.run.supervisor.has_heard();
        match message {
            message if self.mailbox.is_some() => self.hear(message, context),
            SupervisorMsg::Begin => self.begin(context),
            message => self.told.push(message),
        }
    }
}
