//! Runs that are written to the store for another process to execute.

use std::sync::Arc;

use crate::engine::RunBuilder;
use crate::engine::durable::records::journal::unowned_start;
use crate::engine::durable::resume_error::ResumeError;

impl RunBuilder {
    /// Writes the run to the engine's [store](crate::EngineBuilder::store) without executing it, and returns its id. The run is
    /// then durable; the process that claims it executes the first step, for example a worker of a shared store. Its time and its
    /// [`deadline`](Self::deadline) start now. Event subscriptions and answers that were requested on this builder do not apply.
    ///
    /// ```
    /// # use serde_json::json;
    /// # futures::executor::block_on(async {
    /// let store = pirn::store::MemoryStore::new();
    /// let workflow = r#"{"id": "short", "edges": [{"from": "start", "to": "end"}],
    ///     "nodes": [{"id": "start", "type": "START"}, {"id": "end", "type": "END", "config": {"output": "input"}}]}"#;
    /// let first = pirn::Engine::builder().store(store.clone()).workflows(workflow).build()?;
    /// let id = first.run("short").input("hello").enqueue().await?;
    /// let second = pirn::Engine::builder().store(store).build()?;
    /// let report = second.resume(&*id).start().await?.outcome().await;
    /// assert_eq!(report.output, json!("hello"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, the run either exists completely in the store or not at all.
    ///
    /// # Errors
    /// Fails if the engine has no store, the store fails, a run of this id exists in it, or the run cannot start.
    pub async fn enqueue(mut self) -> Result<Arc<str>, ResumeError> {
        let durable = self.engine.durable()?;
        // Validated here too, because no process would report the mistake to this caller later.
        self.settle().map_err(ResumeError::Refused)?;
        let begins = self
            .engine
            .shared()
            .begin_elsewhere(Arc::clone(&self.run_id), self.request);
        let (begun, graphs) = begins.await.map_err(ResumeError::Refused)?;
        let commit = unowned_start(&durable, &begun, &graphs).map_err(ResumeError::Refused)?;
        durable.store.commit(commit).await?;
        Ok(self.run_id)
    }
}
