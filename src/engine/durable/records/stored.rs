//! The stored records of a run, and the run that they rebuild.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pirn_actors::followed_run::FollowedRun;
use pirn_actors::journal::Graphs;
use pirn_actors::rebuilt_run::RebuiltRun;
use pirn_core::run::{
    Diverged, JournaledInput, Message, ReplayStep, RunMachine, RunStart, RunStartRecord, ToSupervisor,
};
use pirn_definition::definition::Fault;
use pirn_store::{Content, ContentHash, Record, Run, Store, StoreError};

use super::parts::Conversations;
use super::results::{named_results, with_result};
use super::sessions::with_conversation;
use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::engine::durable::resume_error::ResumeError;

/// Number of journal records read per page.
const PAGE: usize = 1_000;

/// All stored records of a run.
pub(crate) struct StoredRecords {
    pub(crate) run: Run,
    /// The definition that the run currently uses.
    pub(crate) definition: Arc<str>,
    /// The definition with which the run started.
    first_definition: Arc<str>,
    pub(crate) begun: RunStartRecord,
    pub(crate) inputs: Vec<JournaledInput>,
}

impl StoredRecords {
    pub(crate) async fn read(durable: &Durable, run_id: &str) -> Result<Self, ResumeError> {
        Self::read_with(&*durable.store, &durable.conversations, run_id).await
    }

    /// Like [`Self::read`], with an error if the run has ended.
    pub(in crate::engine::durable) async fn read_live(durable: &Durable, run_id: &str) -> Result<Self, ResumeError> {
        let run = match Self::read(durable, run_id).await {
            // Events are dropped only from a run that has ended, and its end is why it takes no input.
            Err(ResumeError::EventsDropped { run_id }) => {
                let run = durable.store.run(&run_id).await?;
                run.ok_or(StoreError::NoSuchRun { run: run_id })?
            }
            Ok(stored) if stored.run.status.is_final() => stored.run,
            stored => return stored,
        };
        Err(ResumeError::HasEnded {
            run_id: run.id,
            status: run.status,
        })
    }

    /// Like [`Self::read`], without an engine: from a store and a cache of conversations.
    pub(in crate::engine::durable) async fn read_with(
        store: &dyn Store,
        conversations: &Conversations,
        run_id: &str,
    ) -> Result<Self, ResumeError> {
        let unreadable = |step: u64, why: String| ResumeError::Unreadable {
            run_id: run_id.to_owned(),
            step,
            why,
        };
        let run = store
            .run(run_id)
            .await?
            .ok_or_else(|| StoreError::NoSuchRun { run: run_id.to_owned() })?;
        if has_dropped_events(&run) {
            return Err(ResumeError::EventsDropped { run_id: run.id });
        }
        let Some((_, named)) = run.contents.split_first() else {
            return Err(unreadable(0, "its start record is missing".to_owned()));
        };
        let mut hashes = vec![run.definition];
        hashes.extend_from_slice(&run.contents);
        // One request for all contents, because each is a round trip in a shared store.
        let contents = store.contents(hashes);
        // Requested before the contents are awaited, so that the store works on both.
        let mut asked = Some(store.journal(run_id, 0, PAGE));
        let contents = contents.await?;
        let [definition, start, chunks @ ..] = &contents[..] else {
            return Err(unreadable(0, "its contents are missing in the store".to_owned()));
        };
        let definition = Arc::clone(definition);
        let texts: BTreeMap<ContentHash, Arc<str>> = named.iter().copied().zip(chunks.iter().cloned()).collect();
        let begun: RunStartRecord = serde_json::from_str(start).map_err(|error| unreadable(0, error.to_string()))?;
        let source = JournalSource {
            store,
            conversations,
            run: &run,
            session: begun.session().map(|session| Arc::clone(&session.id)),
        };
        let mut inputs = Vec::with_capacity(run.steps as usize);
        while let Some(asking) = asked.take() {
            let page = asking.await?;
            if page.len() == PAGE {
                // The store reads the next page while this one is decoded.
                asked = Some(store.journal(run_id, (inputs.len() + PAGE) as u64, PAGE));
            }
            source.decode(page, 0, &texts, &mut inputs).await?;
        }
        let mut stored = Self {
            run,
            definition: Arc::clone(&definition),
            first_definition: definition,
            begun,
            inputs,
        };
        stored.definition = stored.definition_at(stored.inputs.len());
        Ok(stored)
    }

    /// Reads the inputs of a run after step `after`, up to the last one in this entry of the run.
    pub(in crate::engine::durable) async fn read_further(
        durable: &Durable,
        run: &Run,
        session: Option<Arc<str>>,
        after: u64,
    ) -> Result<Vec<JournaledInput>, ResumeError> {
        let (store, conversations) = (&*durable.store, &*durable.conversations);
        let source = JournalSource {
            store,
            conversations,
            run,
            session,
        };
        let mut inputs = Vec::new();
        loop {
            let page = store.journal(&run.id, after + inputs.len() as u64, PAGE).await?;
            let is_last = page.len() < PAGE;
            // Only those that these steps name: the run may have received many more.
            let named: BTreeSet<ContentHash> = page.iter().flat_map(|record| named_results(&record.body)).collect();
            let named: Vec<ContentHash> = named.into_iter().filter(|hash| run.contents.contains(hash)).collect();
            let texts = match named.len() {
                0 => BTreeMap::new(),
                _ => named
                    .iter()
                    .copied()
                    .zip(store.contents(named.clone()).await?)
                    .collect(),
            };
            source.decode(page, after, &texts, &mut inputs).await?;
            if is_last || after + inputs.len() as u64 >= run.steps {
                return Ok(inputs);
            }
        }
    }

    /// Returns the definition in use after a step. A migration among the steps that a fork shares with its base run applies to the
    /// base run only.
    pub(in crate::engine::durable) fn definition_at(&self, step: usize) -> Arc<str> {
        let shared = self.run.base.as_ref().map_or(0, |base| base.step as usize);
        let own = self.inputs.iter().take(step).skip(shared);
        // The last migration wins, so the search starts at the end.
        let moved = own.rev().find_map(|input| match &input.message {
            Message::Supervisor(ToSupervisor::Migrated(definition)) => Some(definition),
            _ => None,
        });
        Arc::clone(moved.unwrap_or(&self.first_definition))
    }

    fn definition_hash(&self) -> ContentHash {
        // Without a migration both are the same text, and its hash is in the run's row.
        if Arc::ptr_eq(&self.definition, &self.first_definition) {
            return self.run.definition;
        }
        Content::new(&*self.definition).hash()
    }

    pub(in crate::engine::durable) fn begun(&self, graphs: &Graphs) -> Result<RunStart, ResumeError> {
        let mut record = self.begun.clone();
        if self.run.session.is_none() {
            // A fork has the record of its base run, and it must not write that run's session.
            record = record.without_session_effect();
        }
        let graph = graphs.get(&*record.workflow_id).cloned();
        let graph = graph.ok_or_else(|| ResumeError::Unreadable {
            run_id: self.run.id.clone(),
            step: 0,
            why: format!("its definition has no workflow {}", record.workflow_id),
        })?;
        // The id is not part of the record, because forks share the record of their base run.
        Ok(record.named(&self.run.id).begun(graph))
    }

    /// Rebuilds the run as it was after these inputs.
    pub(crate) fn rebuild(
        &self,
        engine: &Engine,
        durable: &Durable,
        inputs: Vec<JournaledInput>,
    ) -> Result<RebuiltRun, ResumeError> {
        self.rebuild_watched(engine, durable, inputs, &mut |_, _| ())
    }

    /// Like [`Self::rebuild`]; `watch` receives every replayed input and effect, with the machine before the input or after the step.
    pub(in crate::engine::durable) fn rebuild_watched(
        &self,
        engine: &Engine,
        durable: &Durable,
        inputs: Vec<JournaledInput>,
        watch: &mut dyn FnMut(&RunMachine, &ReplayStep<'_>),
    ) -> Result<RebuiltRun, ResumeError> {
        let graphs = self.graphs(engine, durable)?;
        let begun = self.begun(&graphs)?;
        let rebuilt = engine.shared().replay_watched(begun, inputs, graphs, watch);
        rebuilt.map_err(|diverged| self.diverged(diverged))
    }

    /// Rebuilds a run of another process, to be continued with the inputs that are recorded later.
    pub(in crate::engine::durable) fn follow(
        &mut self,
        engine: &Engine,
        durable: &Durable,
    ) -> Result<FollowedRun, ResumeError> {
        let graphs = self.graphs(engine, durable)?;
        let begun = self.begun(&graphs)?;
        let inputs = std::mem::take(&mut self.inputs);
        let followed = engine.shared().follow(begun, inputs, graphs);
        followed.map_err(|diverged| self.diverged(diverged))
    }

    fn graphs(&self, engine: &Engine, durable: &Durable) -> Result<Graphs, ResumeError> {
        let graphs = durable.graphs(self.definition_hash(), &self.definition, engine);
        graphs.map_err(|faults| ResumeError::Definition {
            run_id: self.run.id.clone(),
            faults,
        })
    }

    fn diverged(&self, diverged: Diverged) -> ResumeError {
        ResumeError::Diverged {
            run_id: self.run.id.clone(),
            diverged,
        }
    }
}

/// Records of one run, with what is needed to decode them.
struct JournalSource<'a> {
    store: &'a dyn Store,
    conversations: &'a Conversations,
    run: &'a Run,
    session: Option<Arc<str>>,
}

impl JournalSource<'_> {
    /// Decodes the next records of a run: `inputs` has those that follow step `after`.
    async fn decode(
        &self,
        page: Vec<Record>,
        after: u64,
        texts: &BTreeMap<ContentHash, Arc<str>>,
        inputs: &mut Vec<JournaledInput>,
    ) -> Result<(), ResumeError> {
        for record in page {
            let step = after + inputs.len() as u64 + 1;
            // Another process may have recorded it since the run's entry was read, which does not name its contents then.
            if step > self.run.steps {
                return Ok(());
            }
            let unreadable = |why: String| ResumeError::Unreadable {
                run_id: self.run.id.clone(),
                step,
                why,
            };
            let read = with_result(&record.body, texts)
                .unwrap_or_else(|| serde_json::from_str(&record.body).map_err(|error| error.to_string()));
            let mut read = read.map_err(unreadable)?;
            // At most one step of a run has a conversation, so this await rarely does anything.
            let joined = with_conversation(&mut read, self.session.as_ref(), self.store, self.conversations).await;
            joined.map_err(unreadable)?;
            inputs.push(read);
        }
        Ok(())
    }
}

/// Returns true if the run has ended and the store has its report only.
pub(in crate::engine::durable) fn has_dropped_events(run: &Run) -> bool {
    // Every other run names the record of its start.
    run.status.is_final() && run.contents.is_empty()
}

impl Durable {
    /// Returns the workflows of a definition as this engine compiles them. If they equal the engine's current workflows, those are
    /// returned.
    fn graphs(&self, hash: ContentHash, text: &str, engine: &Engine) -> Result<Graphs, Vec<Fault>> {
        // Most runs were started with the current workflows, and these need no compilation.
        let own = engine.shared().all_graphs();
        if self.definitions.is(&own, hash, text) {
            return Ok(own);
        }
        self.compiled
            .get_or_compile(hash, || engine.graphs_alone("the run's definition", text))
    }
}

/// Reads and rebuilds an unfinished run that this engine does not own.
pub(in crate::engine::durable) async fn load_unfinished(
    engine: &Engine,
    run_id: &str,
) -> Result<(StoredRecords, RebuiltRun), ResumeError> {
    let durable = engine.durable()?;
    if engine.shared().carries(run_id) {
        let run_id = run_id.to_owned();
        return Err(ResumeError::UnderWay { run_id });
    }
    let stored = StoredRecords::read_live(&durable, run_id).await?;
    // A clone, because callers such as a migration replay the inputs again.
    let rebuilt = stored.rebuild(engine, &durable, stored.inputs.clone())?;
    Ok((stored, rebuilt))
}
