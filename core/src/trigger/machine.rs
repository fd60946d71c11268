//! The trigger machine: who watches what, and who may still fire.
//!
//! An event is met in two steps, because a condition's expression is evaluated by the host:
//! [`TriggerMachine::candidates`] finds who watches the event, through an index, so that the cost grows with the
//! matches and not with the triggers; [`TriggerMachine::fire`] counts one firing, exactly.
//!
//! | trigger | event | depth | fire |
//! |---|---|---|---|
//! | disabled, or its count is used up | any | any | `Refused` |
//! | enabled | any | below the chain limit | `Fired`; the last one allowed disables it |
//! | enabled | any | at the chain limit | `TooDeep`, not counted |
//!
//! A trigger that stands in a workflow counts for each run by itself; one that stands outside counts for the
//! engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::equality::Equality;
use super::index::{Found, Index, workflow_of};
use super::owner::{Owner, TriggerKey};
use super::written::{Written, WrittenEntry};
use crate::definition::TriggerDefinition;
use crate::event::{Event, EventMask, EventType};

/// How many triggers may follow one from another (SPEC section 5: default 8).
pub const DEFAULT_CHAIN_LIMIT: u32 = 8;

/// A trigger with this id stands there already.
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
    /// Whether the index has answered its expression: it holds.
    pub is_answered: bool,
    /// What [`TriggerMachine::set_mark`] gave it.
    pub mark: Option<u32>,
    slot: u32,
}

/// What came of a match.
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
}

/// A trigger as people ask about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerState {
    /// The user's id.
    pub id: String,
    /// Whether it watches.
    pub enabled: bool,
    /// How often it fired (over all runs).
    pub fired: u64,
}

/// What an event looks at of a trigger that it concerns, in one place; the rest is in its [`Entry`].
#[derive(Clone, Copy, Debug)]
struct Standing {
    key: TriggerKey,
    mark: Option<u32>,
    enabled: bool,
    /// It counts for the engine, not for each run by itself.
    is_engines: bool,
    /// It names a thread, which may be another workflow's than its own.
    names_thread: bool,
    fired: u64,
    /// `maxTriggers`; 0: none.
    limit: u64,
}

#[derive(Debug)]
struct Entry {
    key: TriggerKey,
    owner: Owner,
    definition: Arc<TriggerDefinition>,
    /// What the index answers of its expression.
    equality: Option<Equality>,
}

/// See the module's table. What follows from its triggers is not written down, but found again.
#[derive(Debug, Deserialize)]
#[serde(from = "Written")]
pub struct TriggerMachine {
    chain_limit: u32,
    next: TriggerKey,
    /// The triggers, each where the index finds it without a search; a free place is taken again.
    slots: Vec<Option<Entry>>,
    /// By the same places; what stands in a free one is another's or nobody's, and disabled.
    standings: Vec<Standing>,
    free: Vec<u32>,
    by_key: BTreeMap<TriggerKey, u32>,
    ids: BTreeMap<(Owner, String), TriggerKey>,
    index: Index,
    /// Enabled triggers by the type they watch: how many, and how many of them hold the thread.
    watching: BTreeMap<EventType, (usize, usize)>,
    /// Firings of workflow triggers with a limit, by run.
    by_run: BTreeMap<String, BTreeMap<TriggerKey, u64>>,
    /// What was found last; kept for its room.
    found: Vec<Found>,
}

impl From<Written> for TriggerMachine {
    fn from(written: Written) -> Self {
        let mut machine = Self {
            next: written.next,
            by_run: written.by_run,
            ..Self::new(written.chain_limit)
        };
        for (key, entry) in written.entries {
            let kept = Entry {
                key,
                owner: entry.owner,
                definition: entry.definition,
                equality: entry.equality,
            };
            machine.keep(kept, entry.enabled, entry.fired);
        }
        machine
    }
}

impl Serialize for TriggerMachine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.entries().map(|(entry, standing)| {
            let written = WrittenEntry {
                owner: entry.owner.clone(),
                definition: Arc::clone(&entry.definition),
                equality: entry.equality.clone(),
                enabled: standing.enabled,
                fired: standing.fired,
            };
            (entry.key, written)
        });
        let written = Written {
            chain_limit: self.chain_limit,
            next: self.next,
            entries: entries.collect(),
            by_run: self.by_run.clone(),
        };
        written.serialize(serializer)
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
            next: 0,
            slots: Vec::new(),
            standings: Vec::new(),
            free: Vec::new(),
            by_key: BTreeMap::new(),
            ids: BTreeMap::new(),
            index: Index::default(),
            watching: BTreeMap::new(),
            by_run: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    // ---- what it is

    /// Event types that some enabled trigger watches.
    pub fn interest(&self) -> EventMask {
        self.mask(|(all, _)| *all > 0)
    }

    /// Event types watched by triggers that hold the thread until they end.
    pub fn holding(&self) -> EventMask {
        self.mask(|(_, holding)| *holding > 0)
    }

    /// Every trigger of an owner, by id.
    pub fn states(&self, owner: &Owner) -> Vec<TriggerState> {
        self.entries()
            .filter(|(entry, _)| entry.owner == *owner)
            .map(|(entry, standing)| TriggerState {
                id: entry.definition.id.clone(),
                enabled: standing.enabled,
                fired: standing.fired,
            })
            .collect()
    }

    /// What a watcher that [`TriggerMachine::find`] gave waits for and does; none where it was removed since.
    pub fn definition(&self, watcher: Watcher) -> Option<&Arc<TriggerDefinition>> {
        let entry = self.slots.get(watcher.slot as usize)?.as_ref()?;
        (entry.key == watcher.key).then_some(&entry.definition)
    }

    /// In the order they were added.
    fn entries(&self) -> impl Iterator<Item = (&Entry, &Standing)> {
        self.by_key.values().filter_map(|slot| {
            let slot = *slot as usize;
            Some((self.slots.get(slot)?.as_ref()?, self.standings.get(slot)?))
        })
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
        let id = (owner.clone(), definition.id.clone());
        if self.ids.contains_key(&id) {
            return Err(TriggerExists { id: id.1 });
        }
        let key = self.next;
        self.next += 1;
        let equality = definition.condition.expression.as_deref().and_then(Equality::read);
        let enabled = definition.enabled;
        let entry = Entry {
            key,
            owner,
            definition,
            equality,
        };
        self.keep(entry, enabled, 0);
        Ok(key)
    }

    fn keep(&mut self, entry: Entry, enabled: bool, fired: u64) {
        let key = entry.key;
        let standing = Standing {
            key,
            mark: None,
            enabled,
            is_engines: entry.owner == Owner::Engine,
            names_thread: entry.definition.thread_id.is_some(),
            fired,
            limit: entry.definition.max_triggers.unwrap_or_default(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.standings.push(standing);
            (self.slots.len() - 1) as u32
        });
        self.by_key.insert(key, slot);
        self.ids.insert((entry.owner.clone(), entry.definition.id.clone()), key);
        let equality = entry.equality.as_ref();
        self.index
            .add(found(key, slot, equality), &entry.owner, &entry.definition, equality);
        if enabled {
            self.watch(&entry.definition, true);
        }
        self.standings[slot as usize] = standing;
        self.slots[slot as usize] = Some(entry);
    }

    /// Gives a trigger a number that comes with it whenever it is found, for who keeps more of it elsewhere.
    pub fn set_mark(&mut self, key: TriggerKey, mark: u32) {
        let slot = self.by_key.get(&key);
        if let Some(standing) = slot.and_then(|slot| self.standings.get_mut(*slot as usize)) {
            standing.mark = Some(mark);
        }
    }

    /// Removes a trigger; whether there was one.
    pub fn remove(&mut self, owner: &Owner, id: &str) -> bool {
        let Some(key) = self.ids.remove(&(owner.clone(), id.to_owned())) else {
            return false;
        };
        if let Some(slot) = self.by_key.remove(&key)
            && let Some(entry) = self.slots[slot as usize].take()
        {
            self.free.push(slot);
            let equality = entry.equality.as_ref();
            self.index
                .remove(found(key, slot, equality), &entry.owner, &entry.definition, equality);
            if std::mem::take(&mut self.standings[slot as usize].enabled) {
                self.watch(&entry.definition, false);
            }
        }
        true
    }

    /// Enables or disables a trigger: whether that changed anything, or none where there is no such trigger.
    pub fn set_enabled(&mut self, owner: &Owner, id: &str, enabled: bool) -> Option<bool> {
        let key = self.ids.get(&(owner.clone(), id.to_owned()))?;
        let slot = *self.by_key.get(key)?;
        let definition = Arc::clone(&self.slots[slot as usize].as_ref()?.definition);
        let standing = &mut self.standings[slot as usize];
        let changed = standing.enabled != enabled;
        standing.enabled = enabled;
        if changed {
            self.watch(&definition, enabled);
        }
        Some(changed)
    }

    /// Counts a trigger that begins or ceases to watch.
    fn watch(&mut self, definition: &TriggerDefinition, begins: bool) {
        let (all, holding) = self.watching.entry(definition.condition.event_type).or_default();
        let holds = usize::from(definition.action.holds_the_thread());
        if begins {
            *all += 1;
            *holding += holds;
        } else {
            *all -= 1;
            *holding -= holds;
        }
    }

    /// Forgets what it counted for a run.
    pub fn run_ended(&mut self, run_id: &str) {
        self.by_run.remove(run_id);
    }

    // ---- events

    /// Enabled triggers that watch this event, in the order they were added. Their expressions are not evaluated; those
    /// that compare a field with something else than the event has there are left out.
    pub fn candidates(&mut self, event: &Event) -> Vec<Watcher> {
        let mut watchers = Vec::new();
        self.find(event, &mut watchers);
        watchers
    }

    /// Appends what [`TriggerMachine::candidates`] gives. Whoever asks for several events may do so before any trigger of the
    /// first fires: one that has been disabled since is refused by [`TriggerMachine::fire_watcher`].
    pub fn find(&mut self, event: &Event, watchers: &mut Vec<Watcher>) {
        // Beyond the limit stands only what tells that a chain has reached it.
        if event.raised.trigger_depth > self.chain_limit {
            return;
        }
        let mut found = std::mem::take(&mut self.found);
        self.index.find(event, &mut found);
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        for found in &found {
            if let Some(watcher) = self.watcher(*found, event) {
                watchers.push(watcher);
            }
        }
        found.clear();
        self.found = found;
    }

    fn watcher(&self, found: Found, event: &Event) -> Option<Watcher> {
        let standing = self.standings.get(found.slot as usize)?;
        let is_watching = standing.enabled && (!standing.names_thread || self.is_of_workflow(found.slot, event));
        is_watching.then_some(Watcher {
            key: found.key,
            is_answered: found.is_answered,
            mark: standing.mark,
            slot: found.slot,
        })
    }

    fn is_of_workflow(&self, slot: u32, event: &Event) -> bool {
        let entry = self.slots.get(slot as usize).and_then(Option::as_ref);
        let workflow = entry.and_then(|entry| workflow_of(&entry.owner, &entry.definition));
        workflow.is_none_or(|workflow| *workflow == *event.workflow_id)
    }

    /// Counts a firing of a candidate whose expression held.
    pub fn fire(&mut self, key: TriggerKey, event: &Event) -> Fire {
        match self.by_key.get(&key) {
            Some(slot) => self.fire_in(*slot, key, event),
            None => Fire::Refused,
        }
    }

    /// As [`TriggerMachine::fire`], without a search for it.
    pub fn fire_watcher(&mut self, watcher: Watcher, event: &Event) -> Fire {
        self.fire_in(watcher.slot, watcher.key, event)
    }

    fn fire_in(&mut self, slot: u32, key: TriggerKey, event: &Event) -> Fire {
        let standing = self.standings.get_mut(slot as usize);
        // Its place may be another's by now.
        let Some(standing) = standing.filter(|standing| standing.enabled && standing.key == key) else {
            return Fire::Refused;
        };
        match event.raised.trigger_depth.cmp(&self.chain_limit) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => return Fire::TooDeep,
            // It tells of a chain that is too deep: whoever watches for that must not prolong it.
            std::cmp::Ordering::Greater => return Fire::Refused,
        }
        let limit = (standing.limit > 0).then_some(standing.limit);
        let count = match limit.filter(|_| !standing.is_engines) {
            None => {
                if limit.is_some_and(|limit| standing.fired >= limit) {
                    return Fire::Refused;
                }
                standing.fired + 1
            }
            Some(limit) => {
                let run = self.by_run.entry(event.run_id.to_string()).or_default();
                let count = run.entry(key).or_insert(0);
                if *count >= limit {
                    return Fire::Refused;
                }
                *count += 1;
                *count
            }
        };
        standing.fired += 1;
        if standing.is_engines && limit == Some(count) {
            standing.enabled = false;
            let entry = self.slots.get(slot as usize).and_then(Option::as_ref);
            if let Some(definition) = entry.map(|entry| Arc::clone(&entry.definition)) {
                self.watch(&definition, false);
            }
        }
        Fire::Fired { count }
    }
}

fn found(key: TriggerKey, slot: u32, equality: Option<&Equality>) -> Found {
    Found {
        key,
        slot,
        is_answered: equality.is_some_and(Equality::says_all),
    }
}
