//! A tree of cancellation: a token is cancelled with a reason, and everything below it with it.
//!
//! Invariants:
//! 1. A node's reason goes from none to some once; the first one wins. Where a node is cancelled, all below it are.
//! 2. A child's reason is looked up and the child linked under one lock; cancelling walks the tree under the same lock.
//!    So a child is either there to be cancelled or born cancelled.
//! 3. A listener (a future's waker, a callback) is put in under the lock that shows the reason is still missing, and
//!    taken out by who cancels: it hears of it exactly once, or finds the reason there.
//! 4. [`CancelToken::is_cancelled`] is true only when the reason is there to be read.
//! 5. A token that nobody holds is forgotten at once (in constant time), but for a node with several live children:
//!    those must still hear from above. So the tree has less than twice as many nodes as there are tokens.
//! 6. Nothing here recurses: neither the width nor the depth of the tree costs stack.
//!
//! No deadlock: one lock a tree, whatever its size. Wakers and callbacks run, and foreign values are cloned and dropped,
//! after it is released; a callback may use the tree it is called from.

mod tree;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::prim::{Arc, AtomicBool, Mutex, Ordering, lock};
use tree::{Listener, Tree};

/// A node of a cancel tree. Clones are the same node; [`child`](Self::child) makes one below it.
///
/// ```
/// let root = pirn_sync::CancelToken::new();
/// let child = root.child();
/// root.cancel("shutdown");
/// assert_eq!(child.reason(), Some("shutdown"));
/// ```
pub struct CancelToken<R> {
    node: Arc<Node<R>>,
}

/// Holds a place in the tree until the last clone of the token is gone.
struct Node<R> {
    tree: Arc<Mutex<Tree<R>>>,
    at: usize,
    /// Set after the reason, under the tree's lock: a look at it needs no lock.
    flag: Arc<AtomicBool>,
}

impl<R> CancelToken<R> {
    /// A root.
    pub fn new() -> Self {
        let mut tree = Tree::default();
        let (at, flag) = tree.add(None);
        let tree = Arc::new(Mutex::new(tree));
        let node = Arc::new(Node { tree, at, flag });
        Self { node }
    }

    /// A token that is cancelled with this one, or alone. Made from a cancelled one, it is cancelled.
    #[must_use = "dropping the child forgets it"]
    pub fn child(&self) -> Self {
        let tree = Arc::clone(&self.node.tree);
        let (at, flag) = lock(&tree).add(Some(self.node.at));
        let node = Arc::new(Node { tree, at, flag });
        Self { node }
    }

    /// Whether it is cancelled; takes no lock.
    pub fn is_cancelled(&self) -> bool {
        self.node.flag.load(Ordering::Acquire)
    }

    /// How many nodes the whole tree has, for diagnostics: invariant 5 bounds it.
    pub fn tree_size(&self) -> usize {
        lock(&self.node.tree).size()
    }
}

impl<R: Clone> CancelToken<R> {
    /// Cancels it and everything below it that is not cancelled yet, tells the listeners, and returns whether this call
    /// was the first for this token.
    ///
    /// # Panics
    /// With a callback's own panic, after all listeners have been told.
    pub fn cancel(&self, reason: R) -> bool {
        let reason = Arc::new(reason);
        let heard = lock(&self.node.tree).cancel(self.node.at, &reason);
        let Some(heard) = heard else { return false };
        let mut panic = None;
        for listener in heard {
            let told = catch_unwind(AssertUnwindSafe(|| match listener {
                Listener::Task(waker) => waker.wake(),
                Listener::Callback(call) => call((*reason).clone()),
            }));
            if let Err(payload) = told {
                panic.get_or_insert(payload);
            }
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        true
    }

    /// Why it is cancelled, once it is.
    pub fn reason(&self) -> Option<R> {
        let reason = lock(&self.node.tree).reason(self.node.at);
        reason.map(|reason| (*reason).clone())
    }

    /// A future of the reason. It may be dropped at any time.
    pub fn cancelled(&self) -> Cancelled<R> {
        let token = self.clone();
        Cancelled { token, key: None }
    }

    /// Calls `callback` once with the reason: by whoever cancels, or at once where it is cancelled already. Dropping
    /// the registration takes the callback back, unless it is under way on another thread.
    #[must_use = "dropping the registration takes the callback back"]
    pub fn on_cancel(&self, callback: impl FnOnce(R) + Send + 'static) -> Registration<R> {
        let mut key = None;
        let callback = Listener::Callback(Box::new(callback));
        let mut tree = lock(&self.node.tree);
        let refused = tree.listen(self.node.at, &mut key, callback);
        drop(tree);
        let token = self.clone();
        if let Err((reason, Listener::Callback(call))) = refused
            && !mutant!("cancel: a late callback is not called")
        {
            call((*reason).clone());
        }
        Registration { token, key }
    }
}

impl<R> Drop for Node<R> {
    fn drop(&mut self) {
        let gone = lock(&self.tree).release(self.at);
        drop(gone);
    }
}

impl<R> Clone for CancelToken<R> {
    fn clone(&self) -> Self {
        let node = Arc::clone(&self.node);
        Self { node }
    }
}

impl<R> Default for CancelToken<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> fmt::Debug for CancelToken<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Future of [`CancelToken::cancelled`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Cancelled<R> {
    token: CancelToken<R>,
    key: Option<u64>,
}

impl<R: Clone> Future for Cancelled<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        let node = &this.token.node;
        let waker = Listener::Task(context.waker().clone());
        let mut tree = lock(&node.tree);
        if mutant!("cancel: looks, then registers") && tree.reason(node.at).is_none() {
            drop(tree);
            tree = lock(&node.tree);
            drop(tree.listen_unseen(node.at, &mut this.key, waker));
            return Poll::Pending;
        }
        let displaced = tree.listen(node.at, &mut this.key, waker);
        drop(tree);
        match displaced {
            Ok(_) => Poll::Pending,
            Err((reason, _)) => Poll::Ready((*reason).clone()),
        }
    }
}

impl<R> Drop for Cancelled<R> {
    fn drop(&mut self) {
        self.token.take_back(self.key);
    }
}

/// A callback's place; see [`CancelToken::on_cancel`]. It keeps the token alive.
#[must_use = "dropping the registration takes the callback back"]
pub struct Registration<R> {
    token: CancelToken<R>,
    key: Option<u64>,
}

impl<R> Drop for Registration<R> {
    fn drop(&mut self) {
        self.token.take_back(self.key);
    }
}

impl<R> CancelToken<R> {
    fn take_back(&self, key: Option<u64>) {
        let Some(key) = key else { return };
        let displaced = lock(&self.node.tree).take_back(self.node.at, key);
        drop(displaced);
    }
}
