//! Reference model of SPEC sections 4 and 6: a tree of threads, without queue, effects or machines.

use std::collections::VecDeque;

use pirn_core::status::ThreadStatus::{self, Cancelled, Completed, Failed, Running, Timeout};

use super::shapes::{Does, Strategy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Main,
    /// A path of the parent's fork.
    Branch,
    /// The parent waits for its end.
    Called,
    /// Detached from the other threads: none waits for it.
    Triggered,
}

/// An effect of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alone {
    Works,
    /// Waits for a person.
    Asks,
}

#[derive(Clone, Debug)]
struct Thread {
    does: Does,
    /// Remaining effects of the thread, in order.
    alone: VecDeque<Alone>,
    /// Remaining rounds of its fork, call or map, including the current one.
    rounds: u32,
    /// Branches of the current round.
    branches: Vec<usize>,
    parent: usize,
    why: Why,
    status: ThreadStatus,
    is_detached: bool,
    /// True if the thread's join detached it.
    is_freed: bool,
    /// True if its join is decided.
    is_decided: bool,
}

/// Tree of threads. Threads are numbered in start order.
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
        // All branches are registered before the first one starts a thread.
        let branches: Vec<usize> = paths.iter().map(|path| self.add(*path, no, Why::Branch)).collect();
        self.threads[no].branches.clone_from(&branches);
        if branches.is_empty() {
            self.decide(no);
        }
        for branch in branches {
            self.begin(branch);
        }
    }

    /// Returns the thread for which a trigger may start a sub-workflow now.
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

    /// Returns the threads that work or wait for a person.
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

    /// Returns the threads that wait at a JOIN or for the items of a MAP.
    pub(crate) fn joining(&self) -> Vec<usize> {
        let is_joining = |thread: &Thread| {
            matches!(thread.does, Does::Fork(..) | Does::Map(..)) && thread.status == Running && !thread.is_decided
        };
        (0..self.threads.len())
            .filter(|no| is_joining(&self.threads[*no]))
            .collect()
    }

    /// The time limit of a JOIN passed: all branches are cancelled, including those that a decision would have detached.
    pub(crate) fn join_out_of_time(&mut self, parent: usize) {
        self.threads[parent].is_decided = true;
        for branch in self.threads[parent].branches.clone() {
            self.end(branch, Cancelled);
        }
        self.end(parent, Failed);
    }

    /// Returns the threads that work.
    pub(crate) fn working(&self) -> Vec<usize> {
        self.at(Alone::Works)
    }

    /// Returns the threads that wait for a person.
    pub(crate) fn asking(&self) -> Vec<usize> {
        self.at(Alone::Asks)
    }

    /// Ends the current effect of a thread, with success or not.
    pub(crate) fn end_effect(&mut self, no: usize, succeeds: bool) {
        let thread = &mut self.threads[no];
        if succeeds && thread.alone.len() > 1 {
            thread.alone.pop_front();
            return;
        }
        self.end(no, if succeeds { Completed } else { Failed });
    }

    /// Returns true if the outcome was sent: main has ended, and only detached threads are running.
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
        // Cancel what the thread started, except threads that a JOIN detached.
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

    /// Table of the five strategies.
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
