//! Dry run of a removal: computes the runs and bytes that it would delete.

use std::collections::{BTreeMap, BTreeSet};

use pirn_store::{Removed, StoreError};

use crate::client::Server;
use crate::head::Head;
use crate::objects::CONTENT;
use crate::read;
use crate::wire::by_run;

/// Returns the runs that would be deleted, including hidden bases that become free, and the number of visible ones.
fn erased(heads: &[Head], ids: &[String]) -> (BTreeSet<String>, u64) {
    let mut hidden: BTreeSet<&str> = BTreeSet::new();
    let mut named = 0;
    for head in heads {
        // Runs that were removed before may become free by this removal.
        if head.is_hidden {
            hidden.insert(&head.id);
        } else if ids.contains(&head.id) {
            hidden.insert(&head.id);
            named += 1;
        }
    }
    let mut erased = BTreeSet::new();
    // Each round erases runs without forks, which may free their bases for the next round.
    loop {
        let left = heads.iter().filter(|head| !erased.contains(&head.id));
        let bases: BTreeSet<&str> = left.filter_map(|head| Some(&*head.base.as_ref()?.run)).collect();
        let free: Vec<String> = hidden
            .iter()
            .filter(|id| !bases.contains(*id) && !erased.contains(**id))
            .map(|id| (*id).to_owned())
            .collect();
        if free.is_empty() {
            return (erased, named);
        }
        erased.extend(free);
    }
}

pub(crate) async fn would_remove(server: &Server, ids: &[String]) -> Result<Removed, StoreError> {
    let heads = read::heads(server).await?;
    let (erased, runs) = erased(&heads, ids);
    let gone: Vec<Head> = heads.into_iter().filter(|head| erased.contains(&head.id)).collect();
    let mut bytes: u64 = gone.iter().map(|head| head.bytes + head.snapshot_bytes).sum();
    let mut later = read::names(server, &gone).await?;
    let named = gone
        .iter()
        .flat_map(|head| head.named(later.remove(&head.id).unwrap_or_default()));
    // A content that several of the runs name is counted once.
    let named: BTreeSet<String> = named.collect();
    let named: Vec<String> = named.into_iter().collect();
    // Other namers of these contents.
    let by_gone = gone.iter().filter_map(|head| head.namer.clone());
    let by_gone = by_gone.chain(erased.iter().map(|id| by_run(id)));
    let by_gone: BTreeSet<String> = by_gone.map(|by| format!("by {by}")).collect();
    let mut kept: BTreeMap<String, bool> = named.iter().map(|hash| (hash.clone(), false)).collect();
    for row in read::rows_of(server, "service_key, key", CONTENT, &named, &read::from("by ")).await? {
        if !by_gone.contains(&row.key) {
            kept.insert(row.service_key, true);
        }
    }
    let freed: Vec<String> = kept
        .into_iter()
        .filter(|(_, kept)| !kept)
        .map(|(hash, _)| hash)
        .collect();
    for row in read::rows_of(server, "service_key, key, value_utf8", CONTENT, &freed, "key = 'text'").await? {
        bytes += row.value::<String>(server)?.len() as u64;
    }
    Ok(Removed { runs, bytes })
}
