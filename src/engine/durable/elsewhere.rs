//! Runs that are put into the store for another process to carry.

use std::sync::Arc;

use super::super::RunBuilder;
use super::journal::{beginning, start_of};
use super::resume::ResumeError;

impl RunBuilder {
    /// Puts the run into the engine's [store](crate::EngineBuilder::store) without carrying it, and gives its id: it is durable then, and
    /// takes its first step in whichever process goes on with it, such as a worker of a store that several share. Its time, and its
    /// [`deadline`](Self::deadline), begin now. What was asked for of it here (events, answers) is not given.
    ///
    /// ```
    /// # use serde_json::json;
    /// # futures::executor::block_on(async {
    /// let store = pirn::store::MemoryStore::new();
    /// let workflow = r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
    ///     "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": "input"}}]}"#;
    /// let first = pirn::Engine::builder().store(store.clone()).workflows(workflow).build()?;
    /// let id = first.run("short").input("hello").start_elsewhere().await?;
    /// let second = pirn::Engine::builder().store(store).build()?;
    /// let report = second.resume(&*id).start().await?.outcome().await;
    /// assert_eq!(report.output, json!("hello"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The engine has no store, or it fails; there is a run of this id in it; the run can not start.
    pub async fn start_elsewhere(self) -> Result<Arc<str>, ResumeError> {
        let durable = self.engine.durable()?;
        if let Some(invalid) = self.invalid {
            return Err(ResumeError::Refused(invalid));
        }
        let begins = self
            .engine
            .shared()
            .begin_elsewhere(Arc::clone(&self.run_id), self.request);
        let (begun, graphs) = begins.await.map_err(ResumeError::Refused)?;
        let missing = durable.missing(&graphs, &begun.seed.graph.workflow_id);
        let start = beginning(&begun, &missing).map_err(ResumeError::Refused)?;
        let commit = start_of(&begun, durable.definitions.of(&graphs), start);
        durable.store.commit(commit).await?;
        Ok(self.run_id)
    }
}
