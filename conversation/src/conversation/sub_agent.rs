//! A sub-agent's first prompt: the prompt, its role, its instructions, blank lines between.

use std::fmt;

use pirn_definition::definition::AgentConfig;
use pirn_definition::error::{RunError, RunErrorCode};

/// A sub-agent has no role: `SUB_AGENT_ROLE_MISSING`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleMissing {
    /// The agent's id.
    pub agent_id: String,
}

/// Composes the prompt. Blank instructions are skipped.
///
/// # Errors
/// Returns [`RoleMissing`] if the agent has no role. Call this before any work is done.
pub fn first_prompt(prompt: &str, agent: &AgentConfig) -> Result<String, RoleMissing> {
    // A blank role is treated as absent, because the agent would have no instructions.
    let role = agent.role.as_deref().filter(|role| !role.trim().is_empty());
    let role = role.ok_or_else(|| RoleMissing {
        agent_id: agent.id.clone(),
    })?;
    let instructions = agent.instructions.iter().map(String::as_str);
    let parts: Vec<&str> = [prompt, role]
        .into_iter()
        .chain(instructions)
        // Otherwise the text would start with blank lines.
        .filter(|part| !part.trim().is_empty())
        .collect();
    Ok(parts.join("\n\n"))
}

impl fmt::Display for RoleMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sub-agent {} has no role: give its `agent` a `role`", self.agent_id)
    }
}

impl std::error::Error for RoleMissing {}

impl From<RoleMissing> for RunError {
    fn from(missing: RoleMissing) -> Self {
        Self::new(RunErrorCode::SubAgentRoleMissing, missing.to_string())
    }
}
