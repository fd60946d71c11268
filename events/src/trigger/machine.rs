//! State machine of triggers: stores the triggers of an engine and its workflows, and counts the firings of each.
//!
//! An event is handled in two steps, because the host evaluates a condition's expression. [`TriggerMachine::candidates`] finds
//! the triggers that watch the event through an index, so its cost grows with the matches and not with the number of triggers.
//! [`TriggerMachine::fire`] counts one firing exactly.
//!
//! | trigger | event | depth | fire |
//! |---|---|---|---|
//! | disabled, or its count is used up | any | any | `Refused` |
//! | enabled | any | below the chain limit | `Fired`; the last one allowed disables it |
//! | enabled | any | at the chain limit | `TooDeep`, not counted |
//! | enabled | one that triggers caused, and the budget of its run is used up | below the chain limit | `Exhausted` once; from then on no trigger watches such an event |
//!
//! A trigger defined in a workflow counts its firings for each run separately; one defined outside counts them for the engine.
//!
//! A run that was started before triggers were replaced, or in another process, has own triggers ([`TriggerMachine::set_own`]). The
//! registered triggers of these workflows do not watch its events.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;

use foldhash::fast::FixedState;
use pirn_definition::definition::TriggerDefinition;
use pirn_definition::event_type::EventType;
use serde::{Deserialize, Serialize};

use super::index::{Candidate, TriggerIndex, watched_workflow};
use super::owner::{Owner, TriggerKey};
use crate::event::{Event, EventMask};

/// Default maximum length of a chain of triggers that fire one another.
pub const DEFAULT_CHAIN_LIMIT: u32 = 8;

/// Default maximum number of a run's firings for events that triggers caused.
pub const DEFAULT_TRIGGERED_EVENTS: u64 = 10_000;

/// Error: another trigger of this owner has this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerExists {
    /// The id.
    pub id: String,
}

impl std::fmt::Display for TriggerExists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a trigger with the id {} already exists", self.id)
    }
}

impl std::error::Error for TriggerExists {}

/// A trigger that watches an event; [`TriggerMachine::definition`] returns its condition and action.
#[derive(Clone, Copy, Debug)]
pub struct WatchingTrigger {
    /// Key of the trigger in the machine.
    pub key: TriggerKey,
    /// True if the index has proved that the expression holds, so that it need not be evaluated.
    pub is_answered: bool,
    /// The tag from [`TriggerMachine::set_tag`].
    pub tag: Option<u32>,
}

/// Result of firing a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FireResult {
    /// The trigger fires; with the number of its firings in its run or engine.
    Fired {
        /// Number of firings, including this one.
        count: u64,
    },
    /// The trigger is disabled, or has reached `maxTriggers`.
    Refused,
    /// The firing would exceed the maximum length of a chain of triggers.
    TooDeep,
    /// The budget for events that triggers caused is used up: the run's chains end here. Returned once for a run.
    Exhausted {
        /// The run's budget.
        most: u64,
    },
}

/// Number of a run's firings for events that triggers caused, and its maximum.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Budget {
    most: u64,
    used: u64,
    is_told: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            most: DEFAULT_TRIGGERED_EVENTS,
            used: 0,
            is_told: false,
        }
    }
}

/// Public state of a trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerState {
    /// Id from the definition.
    pub id: String,
    /// True if the trigger is enabled.
    pub enabled: bool,
    /// Number of firings so far, over all runs.
    pub fired: u64,
}

/// A registered trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TriggerRecord {
    owner: Owner,
    definition: Arc<TriggerDefinition>,
    enabled: bool,
    fired: u64,
    #[serde(skip)]
    tag: Option<u32>,
    /// Copied from the definition, which is in another allocation: these fields are read for every event that may match.
    #[serde(skip)]
    limit: Option<NonZeroU64>,
    #[serde(skip)]
    names_thread: bool,
    /// The only run that the trigger watches.
    #[serde(skip)]
    run: Option<Arc<str>>,
}

/// The triggers of a run's own version of some workflows.
#[derive(Clone, Debug, Default)]
struct OwnTriggers {
    workflows: BTreeSet<Arc<str>>,
    keys: Vec<TriggerKey>,
    /// Separate, so that an event meets the own triggers of one run only.
    index: TriggerIndex,
}

/// State of a machine without what can be recomputed.
#[derive(Serialize, Deserialize)]
struct TriggerSnapshot {
    chain_limit: u32,
    next_key: TriggerKey,
    records: BTreeMap<TriggerKey, TriggerRecord>,
    fired_by_run: BTreeMap<String, BTreeMap<Arc<str>, u64>>,
    #[serde(default)]
    budgets: BTreeMap<String, Budget>,
}

/// State machine of triggers; see the table of the module. Serialised as the triggers and their counts; the index is rebuilt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "TriggerSnapshot", into = "TriggerSnapshot")]
pub struct TriggerMachine {
    chain_limit: u32,
    next_key: TriggerKey,
    /// Unordered; results are sorted by key.
    records: HashMap<TriggerKey, TriggerRecord, FixedState>,
    keys: BTreeMap<(Owner, String), TriggerKey>,
    index: TriggerIndex,
    /// Number of enabled triggers for each event type they watch, and how many of them hold the thread.
    watching: BTreeMap<EventType, (usize, usize)>,
    /// Firings of workflow triggers with a limit, by run and name, so that the count of a trigger continues in the run's own version.
    fired_by_run: BTreeMap<String, BTreeMap<Arc<str>, u64>>,
    /// Budgets of the runs that set one, or have used some of the default.
    budgets: BTreeMap<String, Budget>,
    /// Runs with other triggers than the registered ones. Not stored: a run sets them again when it is resumed.
    own: BTreeMap<Arc<str>, OwnTriggers>,
    /// Buffer, reused between events.
    found: Vec<Candidate>,
}

impl From<TriggerSnapshot> for TriggerMachine {
    fn from(snapshot: TriggerSnapshot) -> Self {
        let mut machine = Self::new(snapshot.chain_limit);
        for (key, record) in snapshot.records {
            machine.insert(key, record);
        }
        // Stored, not derived from the records: the key of a removed trigger must not be used again.
        machine.next_key = snapshot.next_key;
        machine.fired_by_run = snapshot.fired_by_run;
        machine.budgets = snapshot.budgets;
        machine
    }
}

impl From<TriggerMachine> for TriggerSnapshot {
    fn from(machine: TriggerMachine) -> Self {
        Self {
            chain_limit: machine.chain_limit,
            next_key: machine.next_key,
            records: machine
                .records
                .into_iter()
                .filter(|(_, record)| record.run.is_none())
                .collect(),
            fired_by_run: machine.fired_by_run,
            budgets: machine.budgets,
        }
    }
}

impl Default for TriggerMachine {
    fn default() -> Self {
        Self::new(DEFAULT_CHAIN_LIMIT)
    }
}

impl TriggerMachine {
    /// Creates a machine that allows chains of at most `chain_limit` triggers.
    pub fn new(chain_limit: u32) -> Self {
        Self {
            chain_limit,
            next_key: 0,
            records: HashMap::default(),
            keys: BTreeMap::new(),
            index: TriggerIndex::default(),
            watching: BTreeMap::new(),
            fired_by_run: BTreeMap::new(),
            budgets: BTreeMap::new(),
            own: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    // ---- getters

    /// Returns the event types that enabled triggers watch.
    pub fn interest(&self) -> EventMask {
        self.mask(|(all, _)| *all > 0)
    }

    /// Returns the event types watched by triggers that hold the thread until they end.
    pub fn holding(&self) -> EventMask {
        self.mask(|(_, holding)| *holding > 0)
    }

    /// Returns the state of every trigger of an owner, in the order of their addition.
    pub fn states(&self, owner: &Owner) -> Vec<TriggerState> {
        let all = self.keys.iter().filter(|((own, _), _)| own == owner);
        let mut keys: Vec<TriggerKey> = all.map(|(_, key)| *key).collect();
        // Keys ascend in the order of addition, and `keys` is ordered by id.
        keys.sort_unstable();
        let records = keys.iter().filter_map(|key| self.records.get(key));
        records
            .map(|record| TriggerState {
                id: record.definition.id.clone(),
                enabled: record.enabled,
                fired: record.fired + self.fired_by_versions(record),
            })
            .collect()
    }

    /// Number of firings of the versions that running runs have of a registered trigger.
    fn fired_by_versions(&self, registered: &TriggerRecord) -> u64 {
        let versions = self.own.values().flat_map(|own| &own.keys);
        let records = versions.filter_map(|key| self.records.get(key));
        let versions = records
            .filter(|record| record.owner == registered.owner && record.definition.id == registered.definition.id);
        versions.map(|record| record.fired).sum()
    }

    /// Returns the name of a trigger, unique in an engine.
    pub fn name_of(&self, watcher: WatchingTrigger) -> Option<Arc<str>> {
        let record = self.records.get(&watcher.key)?;
        Some(record.name())
    }

    /// Returns the definition of a watcher that [`TriggerMachine::find`] returned; `None` if the trigger was removed since.
    pub fn definition(&self, watcher: WatchingTrigger) -> Option<&Arc<TriggerDefinition>> {
        self.records.get(&watcher.key).map(|record| &record.definition)
    }

    fn mask(&self, wanted: impl Fn(&(usize, usize)) -> bool) -> EventMask {
        self.watching
            .iter()
            .filter(|(_, counts)| wanted(counts))
            .fold(EventMask::NONE, |mask, (event_type, _)| {
                mask.union(EventMask::of(*event_type))
            })
    }

    // ---- commands

    /// Adds a trigger.
    pub fn add(&mut self, owner: Owner, definition: Arc<TriggerDefinition>) -> Result<TriggerKey, TriggerExists> {
        let id = (owner, definition.id.clone());
        if self.keys.contains_key(&id) {
            return Err(TriggerExists { id: id.1 });
        }
        Ok(self.add_record(id.0, definition, None))
    }

    fn add_record(&mut self, owner: Owner, definition: Arc<TriggerDefinition>, run: Option<Arc<str>>) -> TriggerKey {
        let key = self.next_key;
        self.next_key += 1;
        let record = TriggerRecord {
            owner,
            enabled: definition.enabled,
            definition,
            fired: 0,
            tag: None,
            limit: None,
            names_thread: false,
            run,
        };
        self.insert(key, record);
        key
    }

    /// Sets the triggers of a run's own version of a workflow, until [`TriggerMachine::run_ended`]. They are enabled as the registered
    /// triggers with their ids are. A second call for the workflow has no effect.
    pub fn set_own(&mut self, run_id: &Arc<str>, workflow: &Arc<str>, definitions: Vec<Arc<TriggerDefinition>>) {
        let own = self.own.entry(Arc::clone(run_id)).or_default();
        if !own.workflows.insert(Arc::clone(workflow)) {
            return;
        }
        let owner = Owner::Workflow(Arc::clone(workflow));
        for definition in definitions {
            let registered = self.keys.get(&(owner.clone(), definition.id.clone()));
            let enabled = registered.and_then(|key| Some(self.records.get(key)?.enabled));
            let key = self.add_record(owner.clone(), definition, Some(Arc::clone(run_id)));
            if let Some(enabled) = enabled {
                self.enable(key, enabled);
            }
        }
    }

    fn insert(&mut self, key: TriggerKey, mut record: TriggerRecord) {
        record.limit = record.definition.max_triggers.and_then(NonZeroU64::new);
        record.names_thread = record.definition.thread_id.is_some();
        let TriggerRecord { owner, definition, .. } = &record;
        // Disabled triggers are indexed too: `watches` excludes them, so that enabling one does not change the index.
        if let Some(run) = &record.run {
            let own = self.own.entry(Arc::clone(run)).or_default();
            own.index.add(key, owner, definition);
            own.keys.push(key);
        } else {
            self.index.add(key, owner, definition);
            self.keys.insert((owner.clone(), definition.id.clone()), key);
        }
        if record.enabled {
            // Only enabled triggers are counted: events of types that nothing watches are not built.
            count_watching(&mut self.watching, definition, true);
        }
        self.records.insert(key, record);
    }

    /// Removes a trigger and returns its key, if it existed.
    pub fn remove(&mut self, owner: &Owner, id: &str) -> Option<TriggerKey> {
        let key = self.keys.remove(&(owner.clone(), id.to_owned()))?;
        let record = self.records.remove(&key)?;
        self.index.remove(key, owner, &record.definition);
        if record.enabled {
            count_watching(&mut self.watching, &record.definition, false);
        }
        Some(key)
    }

    /// Sets the tag in the trigger's [`WatchingTrigger`]s: an index into the caller's own table.
    pub fn set_tag(&mut self, key: TriggerKey, tag: u32) {
        if let Some(record) = self.records.get_mut(&key) {
            record.tag = Some(tag);
        }
    }

    /// Enables or disables a trigger and the own versions of it in runs. Returns whether its state changed, or `None` if the
    /// trigger does not exist.
    pub fn set_enabled(&mut self, owner: &Owner, id: &str, enabled: bool) -> Option<bool> {
        let key = *self.keys.get(&(owner.clone(), id.to_owned()))?;
        let is_version = |key: &TriggerKey| {
            let record = self.records.get(key);
            record.is_some_and(|record| record.owner == *owner && record.definition.id == id)
        };
        let versions: Vec<TriggerKey> = self
            .own
            .values()
            .flat_map(|own| &own.keys)
            .copied()
            .filter(is_version)
            .collect();
        for version in versions {
            self.enable(version, enabled);
        }
        Some(self.enable(key, enabled))
    }

    /// Returns whether the state of the trigger changed.
    fn enable(&mut self, key: TriggerKey, enabled: bool) -> bool {
        let Some(record) = self.records.get_mut(&key) else {
            return false;
        };
        let changed = std::mem::replace(&mut record.enabled, enabled) != enabled;
        if changed {
            count_watching(&mut self.watching, &record.definition, enabled);
        }
        changed
    }

    /// Sets the maximum number of firings for the run's events that triggers caused; the default is [`DEFAULT_TRIGGERED_EVENTS`].
    pub fn set_budget(&mut self, run_id: &str, most: u64) {
        self.budgets.entry(run_id.to_owned()).or_default().most = most;
    }

    /// Marks a run's budget as reported: an earlier machine has returned [`FireResult::Exhausted`] for it.
    pub fn mark_budget_reported(&mut self, run_id: &str) {
        self.budgets.entry(run_id.to_owned()).or_default().is_told = true;
    }

    /// Limits the remaining budget of a run that is ending to [`DEFAULT_TRIGGERED_EVENTS`] firings, so that a run which was
    /// stopped during a trigger cascade terminates.
    pub fn run_ends(&mut self, run_id: &str) {
        // A run without an entry has the default budget, which equals the allowance.
        if let Some(budget) = self.budgets.get_mut(run_id) {
            budget.most = budget.most.min(budget.used.saturating_add(DEFAULT_TRIGGERED_EVENTS));
        }
    }

    /// Removes the counts and the own triggers of a run. Returns true if it had own triggers.
    pub fn run_ended(&mut self, run_id: &str) -> bool {
        self.fired_by_run.remove(run_id);
        self.budgets.remove(run_id);
        let own = self.own.remove(run_id);
        // Their index ends with them.
        for key in own.iter().flat_map(|own| &own.keys) {
            if let Some(record) = self.records.remove(key).filter(|record| record.enabled) {
                count_watching(&mut self.watching, &record.definition, false);
            }
        }
        own.is_some()
    }

    // ---- events

    /// Returns the enabled triggers that watch this event, in the order of their addition. Expressions are not evaluated, but
    /// triggers whose comparison with a literal fails are excluded.
    pub fn candidates(&mut self, event: &Event) -> Vec<WatchingTrigger> {
        let mut watchers = Vec::new();
        self.find(event, &mut watchers);
        watchers
    }

    /// Appends the result of [`TriggerMachine::candidates`]. A caller may collect the watchers of several events before any
    /// trigger of the first fires: a trigger that was disabled since is refused by [`TriggerMachine::fire`].
    pub fn find(&mut self, event: &Event, watchers: &mut Vec<WatchingTrigger>) {
        // Beyond the limit the only event is the report of a chain that has reached it.
        if event.raised.trigger_depth > self.chain_limit {
            return;
        }
        // Firings would be refused. The check here saves their expressions, which the end of a cascade would wait for.
        if event.raised.trigger_depth > 0 && self.budgets.get(&*event.run_id).is_some_and(|budget| budget.is_told) {
            return;
        }
        // Taken while the index and the records are borrowed, and put back for the next event.
        let mut found = std::mem::take(&mut self.found);
        self.index.find(event, &mut found);
        if let Some(own) = self.own.get_mut(&event.run_id) {
            own.index.find(event, &mut found);
        }
        // By key: hash maps have no order, and triggers act in the order of their addition.
        found.sort_unstable();
        for candidate in found.drain(..) {
            let record = self.records.get(&candidate.key);
            if let Some(record) = record.filter(|record| record.watches(event) && self.is_of_run(record, event)) {
                watchers.push(WatchingTrigger {
                    key: candidate.key,
                    is_answered: candidate.is_answered,
                    tag: record.tag,
                });
            }
        }
        self.found = found;
    }

    /// True for a trigger of the run's own index, and for a registered one that the run has not replaced.
    fn is_of_run(&self, record: &TriggerRecord, event: &Event) -> bool {
        // Most machines have no such run: the test saves a lookup for each event.
        if self.own.is_empty() || record.run.is_some() {
            return true;
        }
        let Owner::Workflow(workflow) = &record.owner else {
            return true;
        };
        let own = self.own.get(&event.run_id);
        own.is_none_or(|own| !own.workflows.contains(workflow))
    }

    /// Counts a firing of a candidate whose expression is true.
    pub fn fire(&mut self, key: TriggerKey, event: &Event) -> FireResult {
        self.fire_within(key, event, None)
    }

    /// As [`TriggerMachine::fire`], for one of several machines of an engine. Firings of an engine-wide trigger with a limit are
    /// counted outside of the machines: `claim` returns the number of this firing over all machines, or `None` if the limit is
    /// reached.
    pub fn fire_claimed(&mut self, key: TriggerKey, event: &Event, claim: &dyn Fn() -> Option<u64>) -> FireResult {
        self.fire_within(key, event, Some(claim))
    }

    fn fire_within(&mut self, key: TriggerKey, event: &Event, claim: Option<&dyn Fn() -> Option<u64>>) -> FireResult {
        // `find` may have returned the trigger before an earlier firing, or a command, disabled or removed it.
        let record = self.records.get_mut(&key).filter(|record| record.enabled);
        let Some(record) = record else {
            return FireResult::Refused;
        };
        // Before the counts: a chain that is cut off uses up neither the budget nor `maxTriggers`.
        match event.raised.trigger_depth.cmp(&self.chain_limit) {
            Ordering::Less => {}
            Ordering::Equal => return FireResult::TooDeep,
            // The event reports a chain that is too deep: a trigger on it must not prolong the chain.
            Ordering::Greater => return FireResult::Refused,
        }
        // Events of the run's own steps are not counted: only triggers that fire one another can cascade.
        let is_caused = event.raised.trigger_depth > 0;
        if is_caused
            && let Some(budget) = self
                .budgets
                .get_mut(&*event.run_id)
                .filter(|budget| budget.used >= budget.most)
        {
            // The caller reports the exhaustion once. Each report is an event, which triggers may watch.
            return if std::mem::replace(&mut budget.is_told, true) {
                FireResult::Refused
            } else {
                FireResult::Exhausted { most: budget.most }
            };
        }
        let limit = record.limit.map(NonZeroU64::get);
        let is_engine_wide = record.owner == Owner::Engine;
        let count = match limit.filter(|_| !is_engine_wide) {
            None if limit.is_some() && claim.is_some() => match claim.and_then(|claim| claim()) {
                Some(count) => count,
                None => return FireResult::Refused,
            },
            None => {
                if limit.is_some_and(|limit| record.fired >= limit) {
                    return FireResult::Refused;
                }
                record.fired + 1
            }
            Some(limit) => {
                // Only triggers with a limit get here, so that other runs have no entry.
                let run = self.fired_by_run.entry(event.run_id.to_string()).or_default();
                let count = run.entry(record.name()).or_insert(0);
                if *count >= limit {
                    return FireResult::Refused;
                }
                *count += 1;
                *count
            }
        };
        if is_caused {
            // Looked up by reference first: `entry` would allocate a key for each firing.
            match self.budgets.get_mut(&*event.run_id) {
                Some(budget) => budget.used += 1,
                None => self.budgets.entry(event.run_id.to_string()).or_default().used += 1,
            }
        }
        record.fired += 1;
        // A trigger of a workflow counts for each run, so its limit in one run must not disable it for others.
        if is_engine_wide && limit == Some(count) {
            record.enabled = false;
            count_watching(&mut self.watching, &record.definition, false);
        }
        FireResult::Fired { count }
    }
}

impl TriggerRecord {
    /// Name of the trigger, unique among the registered ones and among those of a run.
    fn name(&self) -> Arc<str> {
        match &self.owner {
            Owner::Engine => self.definition.id.as_str().into(),
            Owner::Workflow(workflow) => format!("{workflow}/{}", self.definition.id).into(),
        }
    }

    /// True if the trigger is enabled and watches the event's workflow. The index does not check the workflow of a trigger that
    /// names a thread.
    fn watches(&self, event: &Event) -> bool {
        let workflow = || watched_workflow(&self.owner, &self.definition);
        self.enabled && (!self.names_thread || workflow().is_none_or(|workflow| *workflow == *event.workflow_id))
    }
}

/// Counts a trigger that starts or stops watching.
fn count_watching(watching: &mut BTreeMap<EventType, (usize, usize)>, definition: &TriggerDefinition, begins: bool) {
    for event_type in definition.watches() {
        let (all, holding) = watching.entry(event_type).or_default();
        let holds = usize::from(definition.holds_the_thread(event_type));
        if begins {
            *all += 1;
            *holding += holds;
        } else {
            *all -= 1;
            *holding -= holds;
        }
    }
}
