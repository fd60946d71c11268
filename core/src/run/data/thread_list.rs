//! Threads of a report, converted on first access.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use pirn_conversation::conversation::TokenUsage;
use pirn_definition::graph::Graph;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::run::parts::tree::Origin;
use crate::status::ThreadStatus;
use crate::thread::{ThreadId, ThreadKind};

/// A thread in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadReport {
    /// Id of the thread, unique in the run.
    pub thread_id: Arc<str>,
    /// Kind of the thread.
    pub kind: ThreadKind,
    /// Id of the thread's workflow.
    pub workflow_id: Arc<str>,
    /// Id of the thread's fork path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<Arc<str>>,
    /// Status at the time of the report.
    pub status: ThreadStatus,
    /// Usage of the thread's model calls.
    #[serde(default, skip_serializing_if = "TokenUsage::is_nothing")]
    pub usage: TokenUsage,
    /// Usage including everything that the thread started, if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_with_started: Option<TokenUsage>,
}

/// Threads in start order; dereferences to a slice. The list is built on first access, so that the end of a run with thousands of
/// branches does not wait for it.
///
/// ```
/// # use pirn_core::run::ThreadList;
/// assert!(ThreadList::from(Vec::new()).is_empty());
/// ```
#[derive(Clone, Default)]
pub struct ThreadList {
    known: Option<Known>,
    list: OnceLock<Vec<ThreadReport>>,
}

#[derive(Clone)]
struct Known {
    run_id: Arc<str>,
    /// Graphs of the threads. Consecutive threads usually share one, which is stored once.
    graphs: Vec<Arc<Graph>>,
    threads: Vec<Thread>,
    /// Usage of each thread alone, and with everything that it started. Empty if nothing was spent.
    spent: Vec<(TokenUsage, TokenUsage)>,
}

#[derive(Clone, Copy)]
struct Thread {
    /// Index of its graph.
    graph: u32,
    origin: Origin,
    kind: ThreadKind,
    status: ThreadStatus,
}

/// Data of a thread before conversion.
pub(in crate::run) struct KnownThread<'a> {
    pub(in crate::run) graph: &'a Arc<Graph>,
    pub(in crate::run) kind: ThreadKind,
    pub(in crate::run) origin: Origin,
    pub(in crate::run) status: ThreadStatus,
}

impl ThreadList {
    /// Creates the list from all threads of a run, in start order.
    pub(in crate::run) fn of<'a>(
        run_id: Arc<str>,
        threads: impl Iterator<Item = KnownThread<'a>>,
        spent: Vec<(TokenUsage, TokenUsage)>,
    ) -> Self {
        let mut known = Known {
            run_id,
            graphs: Vec::new(),
            threads: Vec::with_capacity(threads.size_hint().0),
            spent,
        };
        // Consecutive threads usually share a workflow, so that most comparisons need no search.
        let mut last = 0;
        for thread in threads {
            if !known
                .graphs
                .get(last)
                .is_some_and(|graph| Arc::ptr_eq(graph, thread.graph))
            {
                last = known.place_of(thread.graph);
            }
            known.threads.push(Thread {
                graph: last as u32,
                origin: thread.origin,
                kind: thread.kind,
                status: thread.status,
            });
        }
        Self {
            known: Some(known),
            list: OnceLock::new(),
        }
    }

    /// Converts into a vector.
    pub(in crate::run) fn into_vec(self) -> Vec<ThreadReport> {
        let Self { known, list } = self;
        // Converted at most once: a list that was accessed is moved out.
        list.into_inner()
            .unwrap_or_else(|| known.as_ref().map(Known::list).unwrap_or_default())
    }
}

impl Known {
    fn place_of(&mut self, graph: &Arc<Graph>) -> usize {
        // A linear search: a run has few workflows, and neighbours were compared before.
        let place = self.graphs.iter().position(|known| Arc::ptr_eq(known, graph));
        place.unwrap_or_else(|| {
            self.graphs.push(Arc::clone(graph));
            self.graphs.len() - 1
        })
    }

    fn list(&self) -> Vec<ThreadReport> {
        let report = |(no, thread): (usize, &Thread)| {
            // The index comes from `place_of`, so no thread is left out.
            let graph = self.graphs.get(thread.graph as usize)?;
            let (usage, with_started) = self.spent.get(no).copied().unwrap_or_default();
            Some(ThreadReport {
                thread_id: ThreadId::written(&self.run_id, no),
                kind: thread.kind,
                workflow_id: Arc::clone(&graph.workflow_id),
                path_id: thread.origin.path_id(graph),
                status: thread.status,
                usage,
                usage_with_started: (with_started != usage).then_some(with_started),
            })
        };
        self.threads.iter().enumerate().filter_map(report).collect()
    }
}

impl Deref for ThreadList {
    type Target = [ThreadReport];

    fn deref(&self) -> &Self::Target {
        self.list
            .get_or_init(|| self.known.as_ref().map(Known::list).unwrap_or_default())
    }
}

impl From<Vec<ThreadReport>> for ThreadList {
    fn from(list: Vec<ThreadReport>) -> Self {
        Self {
            // The list is set below, so that it is never converted.
            known: None,
            list: list.into(),
        }
    }
}

impl<'a> IntoIterator for &'a ThreadList {
    type Item = &'a ThreadReport;
    type IntoIter = std::slice::Iter<'a, ThreadReport>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for ThreadList {
    fn eq(&self, other: &Self) -> bool {
        // Compares the converted lists: a deserialized list has no other form.
        **self == **other
    }
}

impl std::fmt::Debug for ThreadList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Serialize for ThreadList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de> Deserialize<'de> for ThreadList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
