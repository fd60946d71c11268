//! First turns: how a thread begins.
//!
//! 1. A thread that has been started waits for its first turn as an entry in the table: no actor, no mailbox.
//! 2. Its first turn is taken here, contained: its actor is made, told what came meanwhile, and started. Most branches
//!    of a fork end in it, and are gone before the next one is made; so a fork of 10,000 needs room for one.
//! 3. A thread that has to wait stands: see [`Standing`]. What it is told has its turn here, after the message that the
//!    supervisor handles; under a virtual clock in a turn of its own, as with first turns.
//! 4. Other tasks of the arbiter have their turn after every few first turns. Under a virtual clock each is asked for
//!    by a task of its own, so that the host goes on choosing which of several threads moves first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use pirn_core::graph::ForkIx;
use pirn_core::thread::{Input, ThreadId};

use super::children::Start;
use super::{Child, Origin, SupervisorActor, SupervisorMsg, ThreadNo};
use crate::contain::Exit;
use crate::thread::{Came, Ended, Left, Standing, ThreadActor, ThreadMsg};

/// First or last turns that are taken before other tasks of the arbiter have theirs.
pub(super) const AT_ONCE: usize = 32;

/// Where a thread is reached.
pub(super) enum Place {
    /// Its first turn is to come. What it is told until then waits here.
    Fresh {
        /// What it starts with; a branch finds that in its fork.
        start: Option<Box<Start>>,
        mail: RefCell<Vec<ThreadMsg>>,
    },
    /// Where it stands between its turns.
    Standing(Rc<Standing>),
    /// Nowhere: it takes its first turn now.
    Away,
    /// It has ended.
    Ended(Ended),
}

/// Threads that wait for their first turn.
#[derive(Default)]
pub(super) struct Fresh {
    waiting: VecDeque<ThreadNo>,
    pub(super) is_asked: bool,
    /// The place of a thread that ended in its first turn, for the next branch.
    pub(super) spare: Option<Box<ThreadActor>>,
}

impl Fresh {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// What threads that stand have been told and not heard yet, in order: of all, or of each where the host chooses which of
/// them hears next.
#[derive(Default)]
pub(super) struct Told {
    waiting: RefCell<VecDeque<(ThreadNo, ThreadMsg)>>,
    by_thread: RefCell<BTreeMap<ThreadNo, VecDeque<ThreadMsg>>>,
    pub(super) is_asked: Cell<bool>,
}

impl SupervisorActor {
    /// Takes a thread into the table and sees to it that it gets its first turn.
    #[inline]
    pub(super) fn enlist(&mut self, child: Child) -> ThreadNo {
        self.live += 1;
        self.live_detached += usize::from(child.is_detached);
        let no = self.threads.add(child);
        if self.is_paused {
            self.tell(no, ThreadMsg::Input(Input::Pause { trigger_depth: 0 }));
        }
        if let Some(child) = self.threads.get(no) {
            self.run.host.tell(|| self.born(no, child));
        }
        if self.run.engine.is_simulated {
            self.ask_later(SupervisorMsg::FirstTurn(no));
        } else {
            self.fresh.waiting.push_back(no);
            if !self.fresh.is_asked {
                self.fresh.is_asked = true;
                self.run.supervisor.do_send(SupervisorMsg::FirstTurns);
            }
        }
        no
    }

    pub(super) fn ask_later(&self, message: SupervisorMsg) {
        let supervisor = Arc::clone(&self.run.supervisor);
        self.run
            .host
            .spawn(Box::pin(async move { supervisor.do_send(message) }));
    }

    /// Takes some first turns.
    pub(super) fn first_turns(&mut self) {
        self.fresh.is_asked = false;
        for _ in 0..AT_ONCE {
            let Some(no) = self.fresh.waiting.pop_front() else {
                break;
            };
            self.first_turn(no);
        }
        if self.fresh.waiting.is_empty() {
            // A run that waits has no room for those that do not.
            self.fresh.waiting = VecDeque::new();
            self.fresh.spare = None;
        } else if !self.fresh.is_asked {
            self.fresh.is_asked = true;
            self.ask_later(SupervisorMsg::FirstTurns);
        }
    }

    /// Takes a thread's first turn.
    pub(super) fn first_turn(&mut self, no: ThreadNo) {
        let Some(child) = self.threads.get_mut(no) else { return };
        if !matches!(child.place, Place::Fresh { .. }) {
            return;
        }
        let Place::Fresh { start, mail } = std::mem::replace(&mut child.place, Place::Away) else {
            return;
        };
        let origin = child.origin;
        let (actor, takes_over) = match (start, origin) {
            (Some(start), _) => {
                let token_limit = self.limit_of(&start);
                let (machine, conversation) = start.into_machine(ThreadId::new(Arc::clone(&self.run.run_id), no));
                let run = Rc::clone(&self.run);
                let actor = ThreadActor::new(run, no, machine, conversation, token_limit);
                (Box::new(actor), self.takes_over(no))
            }
            (None, Origin::Branch { fork, path, .. }) => match self.branch(no, fork, path as usize) {
                Some(branch) => branch,
                None => return self.exited(no, &Exit::Dropped, None),
            },
            (None, Origin::Main | Origin::Called { .. } | Origin::Triggered { .. }) => {
                return self.exited(no, &Exit::Dropped, None);
            }
        };
        let (came, spare) = Standing::first_turn(actor, mail.into_inner(), takes_over);
        self.fresh.spare = spare;
        self.came(no, came);
    }

    /// What came of a thread's turn.
    fn came(&mut self, no: ThreadNo, came: Came) {
        match came {
            Came::Waits(standing) => {
                if let Some(child) = self.threads.get_mut(no) {
                    child.place = Place::Standing(standing);
                }
            }
            // What it said before its end is heard before it.
            Came::Ended(ended) if self.run.unheard.get() > 0 => {
                let ended = Box::new(ended);
                self.run.supervisor.do_send(SupervisorMsg::Ended { thread: no, ended });
            }
            Came::Broke { exit, known } if self.run.unheard.get() > 0 => {
                self.run.supervisor.do_send(SupervisorMsg::Exited {
                    thread: no,
                    exit,
                    known,
                });
            }
            Came::Ended(ended) => self.ended(no, ended),
            Came::Broke { exit, known } => self.exited(no, &exit, known),
            Came::Nothing => {}
        }
    }

    /// Gives those that stand and were told something their turns, some of them now.
    pub(super) fn turns(&mut self) {
        if self.run.engine.is_simulated {
            return;
        }
        for _ in 0..AT_ONCE {
            let Some((no, message)) = self.told.next() else { return };
            self.turn(no, message);
        }
        if !self.told.is_empty() && !self.told.is_asked.replace(true) {
            self.ask_later(SupervisorMsg::Turns);
        }
    }

    /// Gives a thread what it was told first.
    pub(super) fn turn_of(&mut self, no: ThreadNo) {
        if let Some(message) = self.told.next_of(no) {
            self.turn(no, message);
        }
    }

    fn turn(&mut self, no: ThreadNo, message: ThreadMsg) {
        let Some(child) = self.threads.get(no) else { return };
        child.told.set(child.told.get().saturating_sub(1));
        if let Place::Standing(standing) = &child.place {
            let came = Rc::clone(standing).turn(message);
            self.came(no, came);
        }
    }

    /// Tells a thread something; one that has ended hears nothing. One that stands has its turn soon: after this message
    /// to the supervisor, or in a later turn where there are many.
    pub(super) fn tell(&self, thread: ThreadNo, message: ThreadMsg) {
        let Some(child) = self.threads.get(thread) else { return };
        match &child.place {
            Place::Fresh { mail, .. } => mail.borrow_mut().push(message),
            Place::Standing(standing) => match standing.mailbox() {
                // What it was told before comes first.
                Some(mailbox) if child.told.get() == 0 => mailbox.do_send(message),
                Some(_) | None => {
                    child.told.set(child.told.get() + 1);
                    if self.run.engine.is_simulated {
                        self.told.push_of(thread, message);
                        self.ask_later(SupervisorMsg::Turn(thread));
                    } else {
                        self.told.push(thread, message);
                    }
                }
            },
            Place::Away | Place::Ended(_) => {}
        }
    }
}

impl Child {
    /// A branch's place in the graph's fork.
    pub(super) fn path(&self) -> Option<(ForkIx, u32)> {
        match self.origin {
            Origin::Branch { ix, path, .. } => Some((ix, path)),
            Origin::Main | Origin::Called { .. } | Origin::Triggered { .. } => None,
        }
    }

    /// The user's id of its path.
    pub(super) fn path_id(&self) -> Option<&Arc<str>> {
        let (fork, path) = self.path()?;
        Some(&self.graph.fork(fork).paths[path as usize].id)
    }

    /// How it ended, once it has.
    pub(super) fn ended(&self) -> Option<&Ended> {
        match &self.place {
            Place::Ended(ended) => Some(ended),
            Place::Fresh { .. } | Place::Standing(_) | Place::Away => None,
        }
    }

    pub(super) fn ended_mut(&mut self) -> Option<&mut Ended> {
        match &mut self.place {
            Place::Ended(ended) => Some(ended),
            Place::Fresh { .. } | Place::Standing(_) | Place::Away => None,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// What it left behind, where somebody may take that over.
    pub(super) fn left(&self) -> Option<&Left> {
        self.ended()?.left.as_deref()
    }
}

impl Told {
    fn push(&self, thread: ThreadNo, message: ThreadMsg) {
        self.waiting.borrow_mut().push_back((thread, message));
    }

    fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    fn push_of(&self, thread: ThreadNo, message: ThreadMsg) {
        self.by_thread
            .borrow_mut()
            .entry(thread)
            .or_default()
            .push_back(message);
    }

    fn next(&self) -> Option<(ThreadNo, ThreadMsg)> {
        let next = self.waiting.borrow_mut().pop_front();
        if next.is_none() {
            // A run that waits has no room for what it was told.
            self.waiting.take();
        }
        next
    }

    fn next_of(&self, thread: ThreadNo) -> Option<ThreadMsg> {
        let mut by_thread = self.by_thread.borrow_mut();
        let waiting = by_thread.get_mut(&thread)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            by_thread.remove(&thread);
        }
        next
    }
}
