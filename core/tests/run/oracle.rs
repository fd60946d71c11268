//! SPEC sections 4 and 6 on a tree of threads, in as few words as it takes: no queue, no effects, no machine.

use std::collections::VecDeque;

use pirn_core::status::ThreadStatus::{self, Cancelled, Completed, Failed, Running, Timeout};

use crate::shapes::{Does, Strategy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Main,
    /// A path of the parent's fork.
    Branch,
    /// The parent waits for it.
    Called,
    /// Nobody waits for it.
    Triggered,
}

/// One thing that a thread does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    Works,
    /// Waits for a person.
    Asks,
}

#[derive(Clone, Debug)]
struct Thread {
    does: Does,
    /// Effects of the thread alone, one after the other.
    alone: VecDeque<Alone>,
    /// Times that it still does what it does with others, with this one.
    rounds: u32,
    /// The branches of this time.
    branches: Vec<usize>,
    parent: usize,
    why: Why,
    status: ThreadStatus,
    is_detached: bool,
    /// Its own join let it run on.
    is_freed: bool,
    /// Its join is decided.
    is_decided: bool,
}

/// A tree as SPEC has it. Threads are numbered as they start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    threads: Vec<Thread>,
}

impl Oracle {
    pub(crate) fn of(shape: Does) -> Self {
        let mut oracle = Self::default();
        oracle.start(shape, 0, Why::Main);
        oracle
    }

    fn start(&mut self, does: Does, parent: usize, why: Why) -> usize {
        let no = self.add(does, parent, why);
        self.begin(no);
        no
    }

    fn add(&mut self, does: Does, parent: usize, why: Why) -> usize {
        let is_detached = self.threads.get(parent).is_some_and(|parent| parent.is_detached);
        let (rounds, does) = match does {
            Does::Repeat(rounds, does) => (rounds, *does),
            does => (1, does),
        };
        let alone: &[Alone] = match does {
            Does::Work | Does::Triggered(_) => &[Alone::Works],
            Does::Ask => &[Alone::Asks],
            Does::Consent => &[Alone::Asks, Alone::Works],
            Does::Call(_) | Does::Fork(..) | Does::Map(..) | Does::Repeat(..) => &[],
        };
        self.threads.push(Thread {
            does,
            alone: alone.repeat(rounds as usize).into(),
            rounds,
            branches: Vec::new(),
            parent,
            why,
            status: Running,
            is_detached,
            is_freed: false,
            is_decided: false,
        });
        self.threads.len() - 1
    }

    fn begin(&mut self, no: usize) {
        let paths: Vec<Does> = match self.threads[no].does {
            Does::Work | Does::Triggered(_) | Does::Ask | Does::Consent | Does::Repeat(..) => return,
            Does::Call(child) => {
                self.start(*child, no, Why::Called);
                return;
            }
            Does::Fork(_, paths) => paths.to_vec(),
            Does::Map(_, count, item) => vec![*item; count],
        };
        // All are there before the first of them starts something.
        let branches: Vec<usize> = paths.iter().map(|path| self.add(*path, no, Why::Branch)).collect();
        self.threads[no].branches.clone_from(&branches);
        if branches.is_empty() {
            self.decide(no);
        }
        for branch in branches {
            self.begin(branch);
        }
    }

    /// The thread that a trigger may start something for, while it works.
    pub(crate) fn may_trigger(&self) -> Option<usize> {
        let is_open = |thread: &Thread| matches!(thread.does, Does::Triggered(_)) && thread.status == Running;
        let place = self.threads.iter().position(is_open)?;
        let is_started = self.threads.iter().any(|thread| thread.why == Why::Triggered);
        (!is_started).then_some(place)
    }

    pub(crate) fn trigger(&mut self, thread: usize) {
        if let Does::Triggered(child) = self.threads[thread].does {
            self.start(*child, thread, Why::Triggered);
        }
    }

    pub(crate) fn statuses(&self) -> Vec<ThreadStatus> {
        self.threads.iter().map(|thread| thread.status).collect()
    }

    pub(crate) fn is_detached(&self, no: usize) -> bool {
        self.threads[no].is_detached
    }

    /// Those that work or ask.
    pub(crate) fn busy(&self) -> Vec<usize> {
        let is_busy = |thread: &Thread| !thread.alone.is_empty() && thread.status == Running;
        (0..self.threads.len())
            .filter(|no| is_busy(&self.threads[*no]))
            .collect()
    }

    fn at(&self, what: Alone) -> Vec<usize> {
        let is_at = |no: &usize| self.threads[*no].alone.front() == Some(&what);
        self.busy().into_iter().filter(is_at).collect()
    }

    /// Those that wait at a JOIN, or for a MAP's items.
    pub(crate) fn joining(&self) -> Vec<usize> {
        let is_joining = |thread: &Thread| {
            matches!(thread.does, Does::Fork(..) | Does::Map(..)) && thread.status == Running && !thread.is_decided
        };
        (0..self.threads.len())
            .filter(|no| is_joining(&self.threads[*no]))
            .collect()
    }

    /// A JOIN's time is up: whatever runs below it is cancelled, also where a decision would have detached it.
    pub(crate) fn join_out_of_time(&mut self, parent: usize) {
        self.threads[parent].is_decided = true;
        for branch in self.threads[parent].branches.clone() {
            self.end(branch, Cancelled);
        }
        self.end(parent, Failed);
    }

    /// Those that work.
    pub(crate) fn working(&self) -> Vec<usize> {
        self.at(Alone::Works)
    }

    /// Those that wait for a person.
    pub(crate) fn asking(&self) -> Vec<usize> {
        self.at(Alone::Asks)
    }

    /// Ends the thread's own effect, with success or not.
    pub(crate) fn goes(&mut self, no: usize, well: bool) {
        let thread = &mut self.threads[no];
        if well && thread.alone.len() > 1 {
            thread.alone.pop_front();
            return;
        }
        self.end(no, if well { Completed } else { Failed });
    }

    /// True if the outcome is told: main has ended and nothing runs that is not detached.
    pub(crate) fn is_reported(&self) -> bool {
        self.threads[0].status != Running
            && self
                .threads
                .iter()
                .all(|thread| thread.is_detached || thread.status != Running)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.threads.iter().all(|thread| thread.status != Running)
    }

    pub(crate) fn end(&mut self, no: usize, status: ThreadStatus) {
        if self.threads[no].status != Running {
            return;
        }
        self.threads[no].status = status;
        // A thread that ends takes what it started with it, unless a JOIN detached it.
        let below = self.children(no);
        for child in below {
            if !self.threads[child].is_freed {
                self.end(child, Cancelled);
            }
        }
        let Thread { parent, why, .. } = self.threads[no];
        match why {
            Why::Main | Why::Triggered => {}
            Why::Called => {
                let status = if status == Completed { Completed } else { Failed };
                self.end(parent, status);
            }
            Why::Branch => self.decide(parent),
        }
    }

    fn children(&self, no: usize) -> Vec<usize> {
        let is_below = |child: &usize| self.threads[*child].parent == no && *child != no;
        (0..self.threads.len()).filter(is_below).collect()
    }

    /// The five strategies' table.
    fn decide(&mut self, parent: usize) {
        let (Does::Fork(strategy, _) | Does::Map(strategy, ..)) = self.threads[parent].does else {
            return;
        };
        if self.threads[parent].is_decided || self.threads[parent].status != Running {
            return;
        }
        let branches = self.threads[parent].branches.clone();
        let count = |is: fn(ThreadStatus) -> bool| branches.iter().filter(|no| is(self.threads[**no].status)).count();
        let (n, c) = (branches.len(), count(|status| status == Completed));
        let f = count(|status| matches!(status, Failed | Timeout | Cancelled));
        let holds = match strategy {
            Strategy::AllCompleted if c == n => true,
            Strategy::AllCompleted if f >= 1 => false,
            Strategy::AnyCompleted | Strategy::AnyDetached if c >= 1 => true,
            Strategy::AnyCompleted | Strategy::AnyDetached if f == n => false,
            Strategy::AllFailed if f == n => true,
            Strategy::AllFailed if c >= 1 => false,
            Strategy::AnyFailed if f >= 1 => true,
            Strategy::AnyFailed if c == n => false,
            Strategy::TwoCompleted if c >= 2 => true,
            Strategy::TwoCompleted if n - f < 2 => false,
            _ => return,
        };
        self.threads[parent].is_decided = true;
        for branch in branches {
            if strategy == Strategy::AnyDetached && holds {
                if self.threads[branch].status == Running {
                    self.threads[branch].is_freed = true;
                    self.detach(branch);
                }
            } else {
                self.end(branch, Cancelled);
            }
        }
        if holds && self.threads[parent].rounds > 1 {
            self.threads[parent].rounds -= 1;
            self.threads[parent].is_decided = false;
            self.begin(parent);
            return;
        }
        self.end(parent, if holds { Completed } else { Failed });
    }

    fn detach(&mut self, no: usize) {
        self.threads[no].is_detached = true;
        for child in self.children(no) {
            self.detach(child);
        }
    }
}
