//! A folder of files that is removed at the end of the test.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A private folder of one test.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates an empty folder. Each test passes a different `name`.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pirn-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("writable");
        Self { path }
    }

    /// Creates a folder with a `pirn.toml` and a `main.json`, whose model is offered tools, makes these calls and replies `done`.
    pub(crate) fn calling(name: &str, config: &str, offered: &[&str], made: &Value) -> Self {
        let ask = json!({"profileId": "script", "prompt": "go", "tools": offered});
        let workflow = json!({
            "workflows": [{"id": "main", "nodes": [
                {"id": "s", "type": "START"}, {"id": "ask", "type": "LLM", "config": ask}, {"id": "e", "type": "END"}],
                "edges": [{"from": "s", "to": "ask"}, {"from": "ask", "to": "e"}]}],
            "profiles": [{"id": "script", "provider": "scripted", "responses": [{"toolCalls": made}, {"content": "done"}]}],
        });
        let folder = Self::new(name);
        folder
            .with("main.json", &workflow.to_string())
            .with("pirn.toml", config)
    }

    /// Adds a file.
    pub(crate) fn with(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path.join(name), text).expect("writable");
        self
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path.join(name)).expect("readable")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).unwrap_or(());
    }
}
