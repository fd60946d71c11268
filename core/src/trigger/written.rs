//! A trigger machine as it is written down.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::equality::Equality;
use super::owner::{Owner, TriggerKey};
use crate::definition::TriggerDefinition;

#[derive(Serialize, Deserialize)]
#[serde(rename = "TriggerMachine")]
pub(super) struct Written {
    pub(super) chain_limit: u32,
    pub(super) next: TriggerKey,
    pub(super) entries: BTreeMap<TriggerKey, WrittenEntry>,
    pub(super) by_run: BTreeMap<String, BTreeMap<TriggerKey, u64>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Entry")]
pub(super) struct WrittenEntry {
    pub(super) owner: Owner,
    pub(super) definition: Arc<TriggerDefinition>,
    pub(super) equality: Option<Equality>,
    pub(super) enabled: bool,
    pub(super) fired: u64,
}
