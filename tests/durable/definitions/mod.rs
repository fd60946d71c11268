//! Definitions and resources that a resumed run needs: migrations, skills, prices, triggers, missing tools.
//!
//! Not here: runs of earlier versions, which are in `golden`.

mod migration_search;
mod migrations;
mod own_triggers;
mod recorded_budgets;
mod recorded_seeds;
mod resources;
mod skills;
