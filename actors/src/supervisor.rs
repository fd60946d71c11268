//! The supervisor actor, one per run: passes external messages to the machine, and executes effects of the run as a whole
//! (timers, runs that triggers start, the outcome).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use pirn_conversation::conversation::Conversation;
use pirn_core::run::{
    DetachedStart, Effect, MAX_QUIESCE_ROUNDS, Message, Origin, RunMachine, RunReport, RunSeed, SessionSeed,
    SummaryRules, ThreadNo, Timer, ToSupervisor, ToThread,
};
use pirn_core::status::ThreadStatus;
use pirn_core::thread::Input;
use pirn_definition::Millis;
use pirn_definition::definition::{Pinned, ToolDefinition};
use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::Graph;
use pirn_sync::{Permit, Setter};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::host::{ArbiterLease, AwaitKind, Host, Label, Observation, TimerHandle};
use crate::protocol::bus::{BusMsg, TriggerLimit};
use crate::protocol::engine::{DetachedRun, OnEnd, RunEnded};
use crate::protocol::events::Subscription;
use crate::protocol::supervisor::{RunEnd, SupervisorMsg};
use crate::run::rebuilt_run::Resumed;
use crate::run::run_context::RunContext;
use crate::run::turn::Turn;
use crate::sessions::{self, SessionSeat, empty_session};
use crate::triggers::trigger_call::{self, RunningCalls};

/// Parameters of a run's start.
pub(crate) struct RunSpec {
    pub(crate) beginning: Beginning,
    /// Subscribers that receive events from the first step on.
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) outcome: Setter<Arc<RunReport>>,
    pub(crate) settled: Setter<()>,
    pub(crate) on_end: Option<OnEnd>,
    pub(crate) permit: Permit,
    pub(crate) seat: Option<ArbiterLease>,
    pub(crate) session: Option<SessionSeat>,
}

/// The beginning of a run.
pub(crate) enum Beginning {
    New(Box<NewRun>),
    /// Resumed after an earlier process stopped executing it.
    Resumed(Box<Resumed>),
}

/// A run before its first step.
pub(crate) struct NewRun {
    pub(crate) graph: Arc<Graph>,
    pub(crate) input: Arc<Value>,
    pub(crate) conversation: Conversation,
    pub(crate) pinned: Pinned,
    pub(crate) is_unlimited: bool,
    pub(crate) summary_profile: Option<Arc<str>>,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) trigger_depth: u32,
    pub(crate) session: Option<SessionSeed>,
    pub(crate) client_tools: Option<Arc<Vec<ToolDefinition>>>,
    pub(crate) run_seed: Option<u64>,
}

impl Beginning {
    /// Id of its workflow.
    pub(crate) fn workflow_id(&self) -> &Arc<str> {
        match self {
            Self::New(new) => &new.graph.workflow_id,
            Self::Resumed(resumed) => &resumed.rebuilt.workflow_id,
        }
    }

    /// Time of the last input; 0 for a new run.
    pub(crate) fn last_at(&self) -> Millis {
        match self {
            Self::New(_) => 0,
            Self::Resumed(resumed) => resumed.rebuilt.at,
        }
    }
}

impl NewRun {
    /// Builds the seed of a run with this id and a private random number.
    pub(crate) fn seed(
        self,
        run_id: &Arc<str>,
        metadata: Option<&Arc<Map<String, Value>>>,
        host: &Host,
        run_bytes: u64,
    ) -> RunSeed {
        // Drawn in any case, because the order under virtual time takes its numbers from the same sequence.
        let drawn = host.random();
        RunSeed {
            run_id: Arc::clone(run_id),
            graph: self.graph,
            input: self.input,
            conversation: self.conversation,
            pinned: self.pinned,
            metadata: metadata.cloned(),
            is_unlimited: self.is_unlimited,
            deadline_ms: self.deadline_ms,
            trigger_depth: self.trigger_depth,
            seed: self.run_seed.unwrap_or(drawn),
            // Recorded, because a rebuilt run must repeat the order of starts.
            picks_starts: host.picks_order(),
            merges_assignments: true,
            run_bytes,
            session: self.session,
            client_tools: self.client_tools,
            summaries: SummaryRules::new(self.summary_profile),
            gaps: Vec::new(),
        }
    }
}

/// Reports the run's budget for triggered events to the trigger matcher.
pub(crate) fn limit_triggers(workflow: &Graph, run: &RunContext) {
    if let Some(most) = workflow.config.max_triggered_events {
        run.limit_triggers(TriggerLimit::AtMost(most));
    }
}

/// Supervisor of a run. The default value belongs to a run that is over.
#[derive(Default)]
pub(crate) struct SupervisorActor {
    timers: BTreeMap<Timer, TimerHandle>,
    /// Asynchronous calls of triggers. Boxed because few runs have any.
    calls: Option<Box<RunningCalls>>,
    outcome: Option<Setter<Arc<RunReport>>>,
    on_end: Option<OnEnd>,
    /// Completed once the run and everything that it started have ended.
    settled: Option<Setter<()>>,
    /// The run's slot in the engine's admission limit.
    permit: Option<Permit>,
    // Held for its drop, which releases the share of the arbiter.
    _seat: Option<ArbiterLease>,
    /// The run's seat in its session.
    session: Option<Box<SessionSeat>>,
}

impl SupervisorActor {
    pub(crate) fn new(spec: RunSpec) -> (Self, Beginning) {
        let actor = Self {
            timers: BTreeMap::new(),
            calls: None,
            outcome: Some(spec.outcome),
            on_end: spec.on_end,
            settled: Some(spec.settled),
            permit: Some(spec.permit),
            _seat: spec.seat,
            session: spec.session.map(Box::new),
        };
        (actor, spec.beginning)
    }

    /// True if the run has settled and its actor can stop.
    pub(crate) fn is_over(&self) -> bool {
        self.settled.is_none()
    }

    /// Handles a message from the queue.
    pub(crate) fn handle(&mut self, message: ToSupervisor, turn: &mut Turn<'_>) {
        match &message {
            ToSupervisor::Elapsed(timer) => drop(self.timers.remove(timer)),
            ToSupervisor::TriggerCalled { call, .. } => {
                if let Some(calls) = &mut self.calls {
                    calls.ended(*call);
                }
            }
            // No handle of the supervisor belongs to the other messages.
            _ => {}
        }
        turn.step(Message::Supervisor(message));
    }

    /// Executes an effect of the run as a whole, which the machine requested at time `at`.
    pub(crate) fn perform(&mut self, effect: Effect, at: Millis, turn: &mut Turn<'_>) {
        match effect {
            Effect::Begin { thread } => begin(thread, turn),
            Effect::AwaitSession => self.await_session(turn),
            Effect::LeaveSession(left) => {
                if let Some(mut seat) = self.session.take() {
                    seat.leave(left.map(|left| *left));
                }
            }
            Effect::Emit {
                sequence,
                graph,
                thread_id,
                event,
            } => turn
                .run
                .emit(Arc::clone(&graph.workflow_id), thread_id, (sequence, event), at),
            Effect::EmitAll {
                first,
                graph,
                thread_id,
                events,
            } => turn
                .run
                .emit_all(Arc::clone(&graph.workflow_id), thread_id, (first, events), at),
            Effect::SetTimer { timer, after_ms } => {
                let elapsed = turn.later(move || Message::Supervisor(ToSupervisor::Elapsed(timer)));
                let set = turn.run.host.after(limit_label(timer, turn), after_ms, elapsed);
                self.timers.insert(timer, set);
            }
            Effect::StopTimer { timer } => drop(self.timers.remove(&timer)),
            Effect::StartRun(start) => start_run(*start, turn),
            Effect::CallTrigger { call, what } => {
                if let Some(work) = trigger_call::begin(call, &what, turn) {
                    self.calls.get_or_insert_default().begun(call, work);
                }
            }
            Effect::QuiesceTriggers => {
                let supervisor = Arc::clone(&turn.run.supervisor);
                turn.run.limit_triggers(TriggerLimit::Ending);
                turn.run.bus().do_send(BusMsg::Quiesce {
                    run_id: Arc::clone(&turn.run.run_id),
                    rounds: MAX_QUIESCE_ROUNDS,
                    // Sent also if the matcher is gone and drops the answer: the run must not wait for it.
                    answer: Answer::new(move |_| supervisor.do_send(tell(ToSupervisor::TriggersQuiet))),
                });
            }
            Effect::Report(report) => {
                if turn.machine.has_ended() {
                    // Leave before the outcome is published: its receiver may start another run with this id at once.
                    self.leave(turn.run);
                }
                self.report(report);
            }
            Effect::Settled => self.settle(turn.run),
            // Thread effects are handled by the thread actors.
            Effect::Thread { .. } | Effect::Drop { .. } | Effect::AwaitTriggers { .. } | Effect::ThreadEnded { .. } => {
            }
        }
    }

    /// Reports the end of a thread to the host, which stops holding its first step.
    #[allow(clippy::unused_self)] // a method like its siblings
    pub(crate) fn thread_ended(&self, thread: ThreadNo, turn: &Turn<'_>) {
        turn.run.host.observe(|| Observation::Ended {
            run: Arc::clone(&turn.run.run_id),
            thread,
        });
    }

    fn await_session(&mut self, turn: &mut Turn<'_>) {
        let run = turn.run;
        let tokenizer = run.inline_services.tokenizer(turn.machine.graph_of_main());
        let Some(seat) = &mut self.session else {
            // A forked run without a seat never had a turn in the session, so it starts with an empty one.
            let empty = sessions::told(Ok(empty_session(tokenizer.name())));
            return run.supervisor.do_send(tell(empty));
        };
        let (waiting, supervisor) = (seat.turn(run.host.clone(), tokenizer), Arc::clone(&run.supervisor));
        let engine = Arc::clone(run.engine());
        let told = async move {
            match waiting.await {
                // The run before it may have left because of the shutdown. As an input, that would be a failure for ever.
                Some(Err(error)) if error.code == RunErrorCode::SessionBusy && engine.is_closed() => {
                    supervisor.do_send(SupervisorMsg::Closing);
                }
                Some(turn) => supervisor.do_send(tell(sessions::told(turn))),
                None => {}
            }
        };
        run.host.spawn(None, Box::pin(told));
    }

    fn report(&mut self, report: Arc<RunReport>) {
        if let Some(on_end) = self.on_end.take() {
            on_end(RunEnd::Ended(&report));
        }
        if let Some(outcome) = self.outcome.take() {
            outcome.set(report);
        }
    }

    /// True if the run waits in its session for a run that this process does not execute.
    pub(crate) fn is_behind_stored(&self) -> bool {
        self.session.as_ref().is_some_and(|seat| seat.is_behind_stored())
    }

    /// Ends the run in this process.
    pub(crate) fn stop(&mut self, error: RunError, run: &Rc<RunContext>) {
        self.timers.clear();
        self.calls = None;
        // First, because a resume that finds the id free claims the run, and a later release would be that of the new claim.
        run.close_journal();
        // Before the id is free: a resumed run takes over the position, which a later release would take from it.
        let of_session = self.session.take().map(|seat| seat.leave_unfinished());
        // Before the outcome is published, as for `Effect::Report`.
        self.leave(run);
        if run.engine().is_closed() {
            // These may wait for this run only, and then leave too.
            for other in of_session.into_iter().flatten() {
                let _: Result<(), RunEnded> = run.engine().tell_run(&other, SupervisorMsg::Closing);
            }
        }
        // Before the report below, which is only that of this process.
        if let Some(on_end) = self.on_end.take() {
            on_end(RunEnd::Left(&error));
        }
        let report = RunReport::unknown(&run.run_id, ThreadStatus::Failed, error);
        self.report(Arc::new(report));
        self.settle(run);
    }

    /// Releases the run's slot and its id.
    fn leave(&mut self, run: &Rc<RunContext>) {
        // The permit ensures that this runs once: afterwards a new run may use the id.
        if let Some(permit) = self.permit.take() {
            run.engine().forget_run(&run.run_id, &run.supervisor);
            drop(permit);
        }
    }

    fn settle(&mut self, run: &Rc<RunContext>) {
        // A run with detached threads holds its slot and id until here.
        self.leave(run);
        run.leave_bus();
        if let Some(settled) = self.settled.take() {
            settled.set(());
        }
    }
}

fn tell(message: ToSupervisor) -> SupervisorMsg {
    SupervisorMsg::Tell(Message::Supervisor(message))
}

/// Lets the host choose when a thread takes its first step.
fn begin(thread: ThreadNo, turn: &mut Turn<'_>) {
    let run = turn.run;
    // Before the spawn, because the explorer looks up the thread of the label.
    run.host.observe(|| spawned(thread, turn.machine, &run.run_id));
    let label = Label {
        run: &run.run_id,
        thread,
        node: "",
        awaits: AwaitKind::Start,
    };
    // A first step whose moment makes no difference is not labelled, which saves the explorer a choice.
    let label = starts_at_a_choice(thread, turn.machine).then_some(label);
    let supervisor = Arc::clone(&run.supervisor);
    let start = Message::Thread(thread, ToThread::Input(Input::Start));
    let begin = async move { supervisor.do_send(SupervisorMsg::Tell(start)) };
    run.host.spawn(label, Box::pin(begin));
}

/// Returns true if the moment of a thread's first step can make a difference.
fn starts_at_a_choice(thread: ThreadNo, machine: &RunMachine) -> bool {
    match machine.origin(thread) {
        Some((Origin::Called { .. } | Origin::Item { .. }, _)) => true,
        // A first step that only waits reads the global variables, which the first step of another branch may assign.
        Some((Origin::Branch { ix, .. }, graph)) => {
            let mut paths = graph.fork(ix).paths.iter();
            paths.any(|path| graph.node(path.child).kind.is_inline())
        }
        Some((Origin::Main | Origin::Triggered { .. }, _)) | None => false,
    }
}

/// The observation of a new thread.
fn spawned(thread: ThreadNo, machine: &RunMachine, run_id: &Arc<str>) -> Observation {
    let (parent, name, is_branch) = match machine.origin(thread) {
        None => (None, Arc::from(""), false),
        Some((Origin::Main, graph)) => (None, Arc::clone(&graph.workflow_id), false),
        Some((Origin::Called { parent, effect }, graph)) => {
            (Some((parent, effect)), Arc::clone(&graph.workflow_id), false)
        }
        Some((Origin::Triggered { firing }, graph)) => (Some((0, firing)), Arc::clone(&graph.workflow_id), false),
        Some((origin @ (Origin::Branch { fork, .. } | Origin::Item { fork, .. }), graph)) => {
            let name = origin.path_id(graph).unwrap_or_default();
            (machine.fork_parent(fork), name, true)
        }
    };
    Observation::Spawned {
        run: Arc::clone(run_id),
        thread,
        parent,
        name,
        is_branch,
    }
}

/// The label of the JOIN that a time limit belongs to.
fn limit_label<'a>(timer: Timer, turn: &'a Turn<'_>) -> Option<Label<'a>> {
    // The other time limits belong to no node.
    let Timer::Join { fork, .. } = timer else { return None };
    let (thread, node) = turn.machine.join_of(fork)?;
    Some(Label {
        run: &turn.run.run_id,
        thread,
        node,
        awaits: AwaitKind::Limit,
    })
}

/// Starts a run that executes independently. Its outcome is sent back as a message.
fn start_run(start: DetachedStart, turn: &mut Turn<'_>) {
    let (run, firing) = (turn.run, start.firing);
    let again = run.is_durable().then(|| start.clone());
    let supervisor = Arc::clone(&run.supervisor);
    // The run may be on another arbiter, so its outcome comes back through this run's address.
    let on_end: OnEnd = Box::new(move |end| supervisor.do_send(SupervisorMsg::started_run_ended(firing, end)));
    let of = |start, on_end| DetachedRun::of(run.id_of(firing), start, run.supervisor.metadata().cloned(), on_end);
    let started = Arc::clone(run.engine()).start_detached(of(start, on_end));
    let Err(mut error) = started else { return };
    // An engine that shuts down admits no run. As an input, that would be a failure for ever.
    if let Some(start) = again
        && run.engine().is_closed()
    {
        let unowned = of(start, Box::new(|_| ()));
        match Arc::clone(run.engine()).store_detached(unowned, &run.host, run.listening()) {
            Ok(()) => return run.started_run_left(firing),
            Err(invalid) => error = invalid,
        }
    }
    if turn.machine.has_ended() {
        // A settled run ignores the message below, and its report is final.
        let run_id = run.id_of(firing);
        tracing::warn!(%run_id, %error, "a run that a trigger starts could not be started");
    }
    // Recorded as an input, so that a replay repeats the failure without a start.
    run.deliver(turn.machine, Message::started_run_ended(firing, Err(error)));
}
