//! Configuration values that a run uses: answers of its [`RunEnvironment`](crate::run::RunEnvironment) that the workflow does not contain.
//!
//! A durable run records each value at its first use and after each change, with the step that requested it. A rebuilt run uses the
//! recorded values, in every process. After the rebuild it uses the current configuration.
//!
//! | request | recorded | during a rebuild |
//! |---|---|---|
//! | first in a step | if it differs from the last recorded value | last recorded value, else the current configuration |
//! | repeated in the step | no: the value is fixed for the whole step | the value of this step |

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_conversation::conversation::MessageRules;
use pirn_conversation::conversation::compression::SummaryUse;

use super::environment::Setting;

/// Request that a setting answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    TokenLimit(Arc<str>),
    SpeculativeAt,
    ScriptSeed,
    Tokenizer(Arc<str>),
    MessageRules(Option<Arc<str>>),
    Profile(Option<Arc<str>>),
    SummaryUse(Option<Arc<str>>),
    ToolTokens(Arc<str>, Vec<Arc<str>>),
}

/// Configuration values of one run. The module documentation has the rules.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Last value for each request, with the step that requested it last.
    known: BTreeMap<Key, (Setting, u64)>,
    /// Token counts of this step.
    counts: BTreeMap<u64, u64>,
    /// Values that are not recorded yet.
    fresh: Vec<Setting>,
    is_rebuilding: bool,
    /// True for a run that version 0.2.0 or an earlier one started: its tokens are estimated as then.
    pub is_of_0_2_0: bool,
    step: u64,
}

impl Settings {
    /// Creates the settings of a run that is rebuilt from its start. Its values come from [`Self::expect`].
    #[must_use]
    pub fn rebuilding(is_of_0_2_0: bool) -> Self {
        Self {
            is_rebuilding: true,
            is_of_0_2_0,
            ..Self::default()
        }
    }

    /// Ends the rebuild: from here on the current configuration applies. Values used for inputs that had no owner are not recorded
    /// yet: they remain in [`Self::take_fresh`].
    pub fn go_on(&mut self) {
        self.is_rebuilding = false;
        // Values of the last recorded step would otherwise stay fixed until the next input.
        self.next_step();
    }

    /// Starts a new step when the run receives an input.
    pub fn next_step(&mut self) {
        self.step += 1;
        self.counts.clear();
    }

    /// Provides the recorded values of the current step.
    pub fn expect(&mut self, recorded: &[Setting]) {
        for setting in recorded {
            match setting {
                Setting::Count { of, tokens } => drop(self.counts.insert(*of, *tokens)),
                // The budget ledger takes these in `RunMachine::expect_calls`.
                Setting::CallMaximum(_) => {}
                setting => {
                    if let Some(key) = setting.key() {
                        self.known.insert(key, (setting.clone(), self.step));
                    }
                }
            }
        }
    }

    /// Takes the values to record: those requested since the last call.
    pub fn take_fresh(&mut self) -> Vec<Setting> {
        std::mem::take(&mut self.fresh)
    }

    /// Returns the value for this key. `ask` reads the current configuration.
    fn of(&mut self, ask: impl FnOnce() -> Setting, key: Key) -> Setting {
        match self.known.get(&key) {
            Some((known, step)) if self.is_rebuilding || *step == self.step => known.clone(),
            known => {
                let now = ask();
                // An earlier record contains an unchanged value, and a replay has read that record.
                if known.is_none_or(|(known, _)| *known != now) {
                    self.fresh.push(now.clone());
                }
                // Stored even if unchanged: the number of the step fixes the value for the rest of the step.
                self.known.insert(key, (now.clone(), self.step));
                now
            }
        }
    }

    /// See [`super::RunEnvironment::token_limit`].
    pub fn token_limit(&mut self, workflow: &Arc<str>, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let ask = || Setting::TokenLimit {
            workflow: Arc::clone(workflow),
            tokens: ask(),
        };
        // A key and its value have matching variants, here and in the methods below: the other arm cannot occur.
        match self.of(ask, Key::TokenLimit(Arc::clone(workflow))) {
            Setting::TokenLimit { tokens, .. } => tokens,
            _ => None,
        }
    }

    /// See [`super::RunEnvironment::speculative_at`].
    pub fn speculative_at(&mut self, ask: impl FnOnce() -> Option<f64>) -> Option<f64> {
        match self.of(|| Setting::SpeculativeAt(ask()), Key::SpeculativeAt) {
            Setting::SpeculativeAt(share) => share,
            _ => None,
        }
    }

    /// Returns the seed of the random numbers that scripts draw, or `None` if they draw none. Unlike other settings, a recorded seed stays
    /// fixed: a resumed run draws the numbers that it would have drawn without the interruption.
    pub fn script_seed(&mut self, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if let Some((Setting::ScriptSeed(seed), _)) = self.known.get(&Key::ScriptSeed) {
            return Some(*seed);
        }
        let seed = ask()?;
        self.of(|| Setting::ScriptSeed(seed), Key::ScriptSeed);
        Some(seed)
    }

    /// Returns the name of a workflow's tokenizer.
    pub fn tokenizer(&mut self, workflow: &Arc<str>, ask: impl FnOnce() -> Arc<str>) -> Option<Arc<str>> {
        let ask = || Setting::Tokenizer {
            workflow: Arc::clone(workflow),
            name: ask(),
        };
        match self.of(ask, Key::Tokenizer(Arc::clone(workflow))) {
            Setting::Tokenizer { name, .. } => Some(name),
            _ => None,
        }
    }

    /// See [`super::RunEnvironment::message_rules`].
    pub fn message_rules(&mut self, profile: Option<&str>, ask: impl FnOnce() -> MessageRules) -> MessageRules {
        let profile: Option<Arc<str>> = profile.map(Arc::from);
        let ask = || Setting::MessageRules {
            profile: profile.clone(),
            rules: ask(),
        };
        match self.of(ask, Key::MessageRules(profile.clone())) {
            Setting::MessageRules { rules, .. } => rules,
            _ => MessageRules::default(),
        }
    }

    /// See [`super::RunEnvironment::profile`].
    pub fn profile(&mut self, named: Option<&str>, ask: impl FnOnce() -> Option<Arc<str>>) -> Option<Arc<str>> {
        let named: Option<Arc<str>> = named.map(Arc::from);
        let ask = || Setting::Profile {
            named: named.clone(),
            profile: ask(),
        };
        match self.of(ask, Key::Profile(named.clone())) {
            Setting::Profile { profile, .. } => profile,
            _ => None,
        }
    }

    /// See [`super::RunEnvironment::summary_use`].
    pub fn summary_use(&mut self, profile: Option<&str>, ask: impl FnOnce() -> SummaryUse) -> SummaryUse {
        let profile: Option<Arc<str>> = profile.map(Arc::from);
        let ask = || Setting::SummaryUse {
            profile: profile.clone(),
            summaries: ask(),
        };
        match self.of(ask, Key::SummaryUse(profile.clone())) {
            Setting::SummaryUse { summaries, .. } => summaries,
            _ => SummaryUse::default(),
        }
    }

    /// See [`super::RunEnvironment::tool_tokens`].
    pub fn tool_tokens(&mut self, workflow: &Arc<str>, tools: &[Arc<str>], ask: impl FnOnce() -> u64) -> u64 {
        let ask = || Setting::ToolTokens {
            workflow: Arc::clone(workflow),
            tools: tools.to_vec(),
            tokens: ask(),
        };
        // The names are part of the key because nodes of one workflow may use different tools.
        match self.of(ask, Key::ToolTokens(Arc::clone(workflow), tools.to_vec())) {
            Setting::ToolTokens { tokens, .. } => tokens,
            _ => 0,
        }
    }

    /// Returns the tokens of a value by its [`Self::digest`]. Each step records its counts anew: a value is counted in one or two steps.
    pub fn count(&mut self, of: u64, ask: impl FnOnce() -> u64) -> u64 {
        if let Some(tokens) = self.counts.get(&of) {
            return *tokens;
        }
        // A replay gets here only for values that its record lacks.
        let tokens = ask();
        self.counts.insert(of, tokens);
        self.fresh.push(Setting::Count { of, tokens });
        tokens
    }

    /// Returns a hash (FNV-1a) of a tokenizer name and a string. Stable across processes, because it is stored in the journal.
    pub fn digest(tokenizer: &str, text: &str) -> u64 {
        // The separator keeps apart pairs that concatenate to the same bytes.
        let bytes = tokenizer.bytes().chain([0]).chain(text.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl Setting {
    fn key(&self) -> Option<Key> {
        Some(match self {
            Self::TokenLimit { workflow, .. } => Key::TokenLimit(Arc::clone(workflow)),
            Self::SpeculativeAt(_) => Key::SpeculativeAt,
            Self::ScriptSeed(_) => Key::ScriptSeed,
            Self::Tokenizer { workflow, .. } => Key::Tokenizer(Arc::clone(workflow)),
            Self::MessageRules { profile, .. } => Key::MessageRules(profile.clone()),
            Self::Profile { named, .. } => Key::Profile(named.clone()),
            Self::SummaryUse { profile, .. } => Key::SummaryUse(profile.clone()),
            Self::ToolTokens { workflow, tools, .. } => Key::ToolTokens(Arc::clone(workflow), tools.clone()),
            // Valid for one step only, so they have no last value.
            Self::Count { .. } | Self::CallMaximum(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_recorded_on_change_and_constant_within_a_step() {
        let (mut settings, workflow) = (Settings::default(), Arc::from("w"));
        assert_eq!(settings.token_limit(&workflow, || Some(5)), Some(5));
        assert_eq!(settings.token_limit(&workflow, || Some(6)), Some(5), "within one step");
        assert_eq!(settings.take_fresh().len(), 1);
        settings.next_step();
        assert_eq!(settings.token_limit(&workflow, || Some(5)), Some(5));
        assert_eq!(settings.take_fresh(), [], "as before");
        settings.next_step();
        assert_eq!(settings.token_limit(&workflow, || None), None);
        assert_eq!(settings.take_fresh().len(), 1, "it has changed");
    }

    #[test]
    fn a_recorded_seed_stays_fixed_after_a_rebuild() {
        let mut live = Settings::default();
        assert_eq!(live.script_seed(|| None), None);
        assert_eq!(live.script_seed(|| Some(5)), Some(5));
        let record = live.take_fresh();
        let mut again = Settings::rebuilding(false);
        again.next_step();
        again.expect(&record);
        again.go_on();
        assert_eq!(again.script_seed(|| Some(6)), Some(5));
        assert_eq!(again.take_fresh(), [], "the record contains it");
    }

    #[test]
    fn a_rebuilt_run_uses_recorded_settings_and_a_live_run_the_current_settings() {
        let workflow: Arc<str> = "w".into();
        let mut live = Settings::default();
        live.token_limit(&workflow, || Some(5));
        let digest = |text| Settings::digest("words", text);
        live.count(digest("a text"), || 2);
        let record = live.take_fresh();
        let text = serde_json::to_string(&record).unwrap();
        let record: Vec<Setting> = serde_json::from_str(&text).unwrap();
        let mut again = Settings::rebuilding(false);
        again.next_step();
        again.expect(&record);
        assert_eq!(again.token_limit(&workflow, || unreachable!()), Some(5));
        assert_eq!(again.count(digest("a text"), || unreachable!()), 2);
        assert_eq!(again.count(digest("another"), || 3), 3, "it was not recorded");
        again.go_on();
        assert_eq!(again.token_limit(&workflow, || Some(7)), Some(7));
        let fresh = again.take_fresh();
        assert_eq!(fresh.len(), 2, "the unrecorded value and the change: {fresh:?}");
    }
}
