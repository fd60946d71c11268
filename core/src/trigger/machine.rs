//! The trigger machine: the triggers of an engine and its workflows, and how often each has fired.
//!
//! An event is met in two steps, because a condition's expression is evaluated by the host:
//! [`TriggerMachine::candidates`] finds the triggers that watch the event, through an index, so that the cost grows with the
//! matches and not with the triggers; [`TriggerMachine::fire`] counts one firing, exactly.
//!
//! | trigger | event | depth | fire |
//! |---|---|---|---|
//! | disabled, or its count is used up | any | any | `Refused` |
//! | enabled | any | below the chain limit | `Fired`; the last one allowed disables it |
//! | enabled | any | at the chain limit | `TooDeep`, not counted |
//! | enabled | one that triggers caused, and the budget of its run is used up | below the chain limit | `Exhausted` once; from then on no trigger watches such an event |
//!
//! A trigger that stands in a workflow counts for each run by itself; one that stands outside counts for the
//! engine.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;

use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};

use super::index::{Candidate, TriggerIndex, watched_workflow};
use super::owner::{Owner, TriggerKey};
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventMask, EventType};

/// Default limit of triggers that follow one from another.
pub const DEFAULT_CHAIN_LIMIT: u32 = 8;

/// Default limit of a run's firings for what triggers caused.
pub const DEFAULT_TRIGGERED_EVENTS: u64 = 10_000;

/// Another trigger of the same owner has this id.
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

/// A trigger that watches an event; [`TriggerMachine::definition`] has what it waits for and does.
#[derive(Clone, Copy, Debug)]
pub struct Watcher {
    /// Names it in the machine.
    pub key: TriggerKey,
    /// True if its expression is known to hold, so that it need not be evaluated.
    pub is_answered: bool,
    /// The tag from [`TriggerMachine::set_tag`].
    pub tag: Option<u32>,
}

/// The result of asking a trigger to fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fire {
    /// It fires; how often it has now, in its run or engine.
    Fired {
        /// This firing included.
        count: u64,
    },
    /// It is disabled, or has fired as often as it may.
    Refused,
    /// It would be a link too many in a chain of triggers.
    TooDeep,
    /// Triggers have fired for so many events of this run that triggers caused: its chains end here. Told once for a run.
    Exhausted {
        /// The run's budget.
        most: u64,
    },
}

/// The firings of a run for what triggers caused, and how many there may be.
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

/// A trigger's id and state, as shown to people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerState {
    /// The user's id.
    pub id: String,
    /// True if it watches.
    pub enabled: bool,
    /// Firings so far (over all runs).
    pub fired: u64,
}

/// One trigger.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TriggerRecord {
    owner: Owner,
    definition: Arc<TriggerDefinition>,
    enabled: bool,
    fired: u64,
    #[serde(skip)]
    tag: Option<u32>,
    /// Of the definition, which lies elsewhere in memory: these are read for every event that concerns the trigger.
    #[serde(skip)]
    limit: Option<NonZeroU64>,
    #[serde(skip)]
    names_thread: bool,
}

/// Everything of a machine that can not be computed again.
#[derive(Serialize, Deserialize)]
struct TriggerSnapshot {
    chain_limit: u32,
    next_key: TriggerKey,
    records: BTreeMap<TriggerKey, TriggerRecord>,
    fired_by_run: BTreeMap<String, BTreeMap<TriggerKey, u64>>,
    #[serde(default)]
    budgets: BTreeMap<String, Budget>,
}

/// See the module's table. Serialises as the triggers and their counts; the index is computed again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "TriggerSnapshot", into = "TriggerSnapshot")]
pub struct TriggerMachine {
    chain_limit: u32,
    next_key: TriggerKey,
    /// In no order that anybody sees.
    records: HashMap<TriggerKey, TriggerRecord, FixedState>,
    keys: BTreeMap<(Owner, String), TriggerKey>,
    index: TriggerIndex,
    /// Enabled triggers by the type they watch: how many, and how many of them hold the thread.
    watching: BTreeMap<EventType, (usize, usize)>,
    /// Firings of workflow triggers with a limit, by run.
    fired_by_run: BTreeMap<String, BTreeMap<TriggerKey, u64>>,
    /// Of runs that have a budget of their own, or have used some of it.
    budgets: BTreeMap<String, Budget>,
    /// A buffer, kept between events.
    found: Vec<Candidate>,
}

impl From<TriggerSnapshot> for TriggerMachine {
    fn from(snapshot: TriggerSnapshot) -> Self {
        let mut machine = Self::new(snapshot.chain_limit);
        for (key, record) in snapshot.records {
            machine.insert(key, record);
        }
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
            records: machine.records.into_iter().collect(),
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
    /// A machine that lets at most `chain_limit` triggers follow one from another.
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
            found: Vec::new(),
        }
    }

    // ---- getters

    /// Event types that some enabled trigger watches.
    pub fn interest(&self) -> EventMask {
        self.mask(|(all, _)| *all > 0)
    }

    /// Event types watched by triggers that hold the thread until they end.
    pub fn holding(&self) -> EventMask {
        self.mask(|(_, holding)| *holding > 0)
    }

    /// Every trigger of an owner, in the order they were added.
    pub fn states(&self, owner: &Owner) -> Vec<TriggerState> {
        let all = self.keys.iter().filter(|((own, _), _)| own == owner);
        let mut keys: Vec<TriggerKey> = all.map(|(_, key)| *key).collect();
        keys.sort_unstable();
        let records = keys.iter().filter_map(|key| self.records.get(key));
        records
            .map(|record| TriggerState {
                id: record.definition.id.clone(),
                enabled: record.enabled,
                fired: record.fired,
            })
            .collect()
    }

    /// Names a trigger among all of an engine.
    pub fn name_of(&self, watcher: Watcher) -> Option<Arc<str>> {
        let record = self.records.get(&watcher.key)?;
        Some(match &record.owner {
            Owner::Engine => record.definition.id.as_str().into(),
            Owner::Workflow(workflow) => format!("{workflow}/{}", record.definition.id).into(),
        })
    }

    /// The definition of a watcher that [`TriggerMachine::find`] gave; none where it was removed since.
    pub fn definition(&self, watcher: Watcher) -> Option<&Arc<TriggerDefinition>> {
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
        let key = self.next_key;
        self.next_key += 1;
        let record = TriggerRecord {
            owner: id.0,
            enabled: definition.enabled,
            definition,
            fired: 0,
            tag: None,
            limit: None,
            names_thread: false,
        };
        self.insert(key, record);
        Ok(key)
    }

    fn insert(&mut self, key: TriggerKey, mut record: TriggerRecord) {
        record.limit = record.definition.max_triggers.and_then(NonZeroU64::new);
        record.names_thread = record.definition.thread_id.is_some();
        let TriggerRecord { owner, definition, .. } = &record;
        self.index.add(key, owner, definition);
        self.keys.insert((owner.clone(), definition.id.clone()), key);
        if record.enabled {
            count_watching(&mut self.watching, definition, true);
        }
        self.records.insert(key, record);
    }

    /// Removes a trigger; its key, where there was one.
    pub fn remove(&mut self, owner: &Owner, id: &str) -> Option<TriggerKey> {
        let key = self.keys.remove(&(owner.clone(), id.to_owned()))?;
        let record = self.records.remove(&key)?;
        self.index.remove(key, owner, &record.definition);
        if record.enabled {
            count_watching(&mut self.watching, &record.definition, false);
        }
        Some(key)
    }

    /// Gives a trigger a number that its [`Watcher`]s carry from then on: the place where the caller keeps more of it.
    pub fn set_tag(&mut self, key: TriggerKey, tag: u32) {
        if let Some(record) = self.records.get_mut(&key) {
            record.tag = Some(tag);
        }
    }

    /// Enables or disables a trigger: whether that changed anything, or none where there is no such trigger.
    pub fn set_enabled(&mut self, owner: &Owner, id: &str, enabled: bool) -> Option<bool> {
        let key = self.keys.get(&(owner.clone(), id.to_owned()))?;
        let record = self.records.get_mut(key)?;
        let changed = std::mem::replace(&mut record.enabled, enabled) != enabled;
        if changed {
            count_watching(&mut self.watching, &record.definition, enabled);
        }
        Some(changed)
    }

    /// Lets triggers fire for at most so many events of a run that triggers caused; [`DEFAULT_TRIGGERED_EVENTS`] where nothing is
    /// said.
    pub fn set_budget(&mut self, run_id: &str, most: u64) {
        self.budgets.entry(run_id.to_owned()).or_default().most = most;
    }

    /// A run was told that its budget is used up, by an earlier machine.
    pub fn told_of_budget(&mut self, run_id: &str) {
        self.budgets.entry(run_id.to_owned()).or_default().is_told = true;
    }

    /// A run is over but for what its triggers still do. However large its budget is, no more than [`DEFAULT_TRIGGERED_EVENTS`] of
    /// it are left from now on: a run that was stopped in a storm of triggers ends.
    pub fn run_ends(&mut self, run_id: &str) {
        if let Some(budget) = self.budgets.get_mut(run_id) {
            budget.most = budget.most.min(budget.used.saturating_add(DEFAULT_TRIGGERED_EVENTS));
        }
    }

    /// Forgets the counts of a run.
    pub fn run_ended(&mut self, run_id: &str) {
        self.fired_by_run.remove(run_id);
        self.budgets.remove(run_id);
    }

    // ---- events

    /// Enabled triggers that watch this event, in the order they were added. Their expressions are not evaluated; those
    /// that compare a field with something else than the event has there are left out.
    pub fn candidates(&mut self, event: &Event) -> Vec<Watcher> {
        let mut watchers = Vec::new();
        self.find(event, &mut watchers);
        watchers
    }

    /// Appends what [`TriggerMachine::candidates`] gives. A caller may ask for several events before any trigger of the
    /// first fires: one that has been disabled since is refused by [`TriggerMachine::fire`].
    pub fn find(&mut self, event: &Event, watchers: &mut Vec<Watcher>) {
        // Beyond the limit there is only the event that reports a chain which has reached it.
        if event.raised.trigger_depth > self.chain_limit {
            return;
        }
        if event.raised.trigger_depth > 0 && self.budgets.get(&*event.run_id).is_some_and(|budget| budget.is_told) {
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        self.index.find(event, &mut found);
        found.sort_unstable();
        for candidate in found.drain(..) {
            let record = self.records.get(&candidate.key);
            if let Some(record) = record.filter(|record| record.watches(event)) {
                watchers.push(Watcher {
                    key: candidate.key,
                    is_answered: candidate.is_answered,
                    tag: record.tag,
                });
            }
        }
        self.found = found;
    }

    /// Counts a firing of a candidate whose expression held.
    pub fn fire(&mut self, key: TriggerKey, event: &Event) -> Fire {
        self.fire_within(key, event, None)
    }

    /// As [`TriggerMachine::fire`], for one of several machines of an engine. A trigger that counts for the engine and has
    /// a limit counts outside of them: `claim` gives the number of this firing in all of them, or none where it may not
    /// fire any more.
    pub fn fire_claimed(&mut self, key: TriggerKey, event: &Event, claim: &dyn Fn() -> Option<u64>) -> Fire {
        self.fire_within(key, event, Some(claim))
    }

    fn fire_within(&mut self, key: TriggerKey, event: &Event, claim: Option<&dyn Fn() -> Option<u64>>) -> Fire {
        let record = self.records.get_mut(&key).filter(|record| record.enabled);
        let Some(record) = record else {
            return Fire::Refused;
        };
        match event.raised.trigger_depth.cmp(&self.chain_limit) {
            Ordering::Less => {}
            Ordering::Equal => return Fire::TooDeep,
            // The event reports a chain that is too deep: a trigger on it must not prolong the chain.
            Ordering::Greater => return Fire::Refused,
        }
        let is_caused = event.raised.trigger_depth > 0;
        if is_caused
            && let Some(budget) = self
                .budgets
                .get_mut(&*event.run_id)
                .filter(|budget| budget.used >= budget.most)
        {
            return if std::mem::replace(&mut budget.is_told, true) {
                Fire::Refused
            } else {
                Fire::Exhausted { most: budget.most }
            };
        }
        let limit = record.limit.map(NonZeroU64::get);
        let is_engine_wide = record.owner == Owner::Engine;
        let count = match limit.filter(|_| !is_engine_wide) {
            None if limit.is_some() && claim.is_some() => match claim.and_then(|claim| claim()) {
                Some(count) => count,
                None => return Fire::Refused,
            },
            None => {
                if limit.is_some_and(|limit| record.fired >= limit) {
                    return Fire::Refused;
                }
                record.fired + 1
            }
            Some(limit) => {
                let run = self.fired_by_run.entry(event.run_id.to_string()).or_default();
                let count = run.entry(key).or_insert(0);
                if *count >= limit {
                    return Fire::Refused;
                }
                *count += 1;
                *count
            }
        };
        if is_caused {
            match self.budgets.get_mut(&*event.run_id) {
                Some(budget) => budget.used += 1,
                None => self.budgets.entry(event.run_id.to_string()).or_default().used += 1,
            }
        }
        record.fired += 1;
        if is_engine_wide && limit == Some(count) {
            record.enabled = false;
            count_watching(&mut self.watching, &record.definition, false);
        }
        Fire::Fired { count }
    }
}

impl TriggerRecord {
    /// True if it is enabled, and its workflow the event's: the index does not look at that where it names a thread.
    fn watches(&self, event: &Event) -> bool {
        let workflow = || watched_workflow(&self.owner, &self.definition);
        self.enabled && (!self.names_thread || workflow().is_none_or(|workflow| *workflow == *event.workflow_id))
    }
}

/// Counts a trigger that begins or ceases to watch.
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
