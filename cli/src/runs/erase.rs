//! `pirn runs erase`: removes all data of a session or a tenant.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::ArgGroup;
use futures::executor::block_on;
use futures::future::try_join_all;
use pirn::store::{Run, RunFilter, Store, is_started, starter_of};
use pirn_service::{Tenant, forget_keys, forget_usage};
use serde_json::json;

use crate::output::failure::Failure;
use crate::output::terminal::{Output, answer, counted, json_text, say, shell_quoted};
use crate::store::place::StoreArgs;
use crate::store::{all, beside_key, config_key, refused};

/// Number of sessions that one query of the store returns.
const PAGE: usize = 1_000;

/// Arguments of `pirn runs erase`.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("erased").required(true).args(["session", "tenant"]))]
pub(super) struct Erase {
    /// Erase this session, its runs, their forks and the runs that they started
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Erase every session and run of this tenant, their forks and the runs that they started
    #[arg(long, value_name = "NAME", value_parser = Tenant::new)]
    tenant: Option<Tenant>,
    /// Only report what would be erased
    #[arg(long)]
    dry_run: bool,
}

impl Erase {
    pub(super) fn run(&self, store: &StoreArgs, output: Output) -> Result<ExitCode, Failure> {
        let store = store.open()?;
        let runs = self.runs(&*store)?;
        if let Some(run) = runs.iter().find(|run| !run.status.is_final()) {
            let message = format!("nothing was erased: run {} has not ended", run.id);
            return Err(Failure::failed("RUN_IN_PROGRESS", message)
                .with_help(format!("end it first: pirn runs cancel {}", shell_quoted(&run.id))));
        }
        let sessions = self.sessions(&*store)?;
        if runs.is_empty() && sessions.is_empty() && output == Output::Text {
            say(&self.nothing_found());
        }
        let ids: Vec<String> = runs.into_iter().map(|run| run.id).collect();
        if !self.dry_run {
            // The runs last: a repeated command, after this one was killed, finds by them what else belongs to them.
            for session in &sessions {
                block_on(store.remove_session(session)).map_err(|error| refused(&error))?;
            }
            if let Some(tenant) = &self.tenant {
                block_on(forget_usage(&*store, tenant)).map_err(|error| refused(&error))?;
            }
            let keys = ids.iter().flat_map(|id| [config_key(id), beside_key(id)]);
            let forgotten = keys.map(|key| store.set_meta(&key, None));
            block_on(try_join_all(forgotten.collect::<Vec<_>>())).map_err(|error| refused(&error))?;
            let ids: BTreeSet<String> = ids.iter().cloned().collect();
            block_on(forget_keys(&*store, &ids)).map_err(|error| refused(&error))?;
        }
        let removed = block_on(store.remove(ids, self.dry_run)).map_err(|error| refused(&error))?;
        if !self.dry_run {
            // Rewrites the file, so that no copy of erased data is left in it.
            block_on(store.shrink(true)).map_err(|error| refused(&error))?;
        }
        let (count, bytes) = (removed.runs, removed.bytes);
        Ok(match output {
            Output::Json => {
                let erased = json!({"runs": count, "sessions": sessions.len(), "bytesFreed": bytes});
                answer(&json_text(erased), 0)
            }
            Output::Text => answer(
                &format!(
                    "{}, {}, {}\n",
                    counted(count, "run"),
                    counted(sessions.len(), "session"),
                    counted(bytes, "byte")
                ),
                0,
            ),
        })
    }

    fn nothing_found(&self) -> String {
        match (&self.tenant, &self.session) {
            (Some(tenant), _) => format!("the store has no data of the tenant {}", tenant.name()),
            (None, session) => format!(
                "the store has no session {} and no run of it",
                session.as_deref().unwrap_or_default()
            ),
        }
    }

    /// Returns the runs to erase. A fork shares its history with its base, and a run that another run started has data of it.
    fn runs(&self, store: &dyn Store) -> Result<Vec<Run>, Failure> {
        let mut left = all(store, &RunFilter::default())?;
        let mut erased: Vec<Run> = Vec::new();
        let mut ids = BTreeSet::new();
        loop {
            let (mut found, mut rest) = (Vec::new(), Vec::new());
            for run in left {
                let is_erased = self.is_named(&run)
                    || run.base.as_ref().is_some_and(|base| ids.contains(&base.run))
                    || starter_of(&run.id).is_some_and(|starter| ids.contains(starter))
                        && block_on(is_started(store, &run)).map_err(|error| refused(&error))?;
                if is_erased { found.push(run) } else { rest.push(run) }
            }
            if found.is_empty() {
                return Ok(erased);
            }
            ids.extend(found.iter().map(|run| run.id.clone()));
            erased.extend(found);
            left = rest;
        }
    }

    fn is_named(&self, run: &Run) -> bool {
        let is_of_tenant = |tenant: &Tenant| tenant.owns(&run.id);
        self.tenant.as_ref().is_some_and(is_of_tenant) || self.session.is_some() && run.session == self.session
    }

    /// Returns the sessions to erase.
    fn sessions(&self, store: &dyn Store) -> Result<Vec<String>, Failure> {
        let Some(tenant) = &self.tenant else {
            let id = self.session.clone().unwrap_or_default();
            let found = block_on(store.session(&id)).map_err(|error| refused(&error))?;
            return Ok(found.into_iter().map(|session| session.id).collect());
        };
        let (mut own, mut after) = (Vec::new(), None);
        loop {
            let page = block_on(store.sessions(after, PAGE)).map_err(|error| refused(&error))?;
            after = page.last().map(|session| session.id.clone());
            own.extend(page.into_iter().map(|session| session.id).filter(|id| tenant.owns(id)));
            if after.is_none() {
                return Ok(own);
            }
        }
    }
}
