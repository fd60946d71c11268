//! The configuration that a run goes by: what its machine asks the world for and the workflow does not say.
//!
//! A run that is kept records each value when it first goes by it, and again when it has changed, with the step that asked. A run
//! that is rebuilt goes by what it recorded, in whatever process that is; one that goes on goes by the configuration there.
//!
//! | what is asked | recorded | rebuilt |
//! |---|---|---|
//! | for the first time in a step | if it is not what was recorded last | what was recorded last, else as the world says |
//! | again in the same step | no: it stays as it was for the whole step | the same |

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ledger::CallMost;
use crate::conversation::MessageRules;

/// A value that a run went by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Setting {
    /// The token limit of a workflow that names none.
    TokenLimit {
        /// The workflow.
        workflow: Arc<str>,
        /// None: there is none.
        tokens: Option<u64>,
    },
    /// The share of the limit at which compression begins early, where the workflow names none.
    SpeculativeAt(Option<f64>),
    /// The tokenizer of a workflow.
    Tokenizer {
        /// The workflow.
        workflow: Arc<str>,
        /// The tokenizer's name.
        name: Arc<str>,
    },
    /// The order of messages that a profile's model takes.
    MessageRules {
        /// The profile; none: the default one.
        profile: Option<Arc<str>>,
        /// The order.
        rules: MessageRules,
    },
    /// The profile that a name, or none, stands for.
    Profile {
        /// The name.
        named: Option<Arc<str>>,
        /// The profile.
        profile: Option<Arc<str>>,
    },
    /// Tokens of the definitions of tools.
    ToolTokens {
        /// The workflow that counts them.
        workflow: Arc<str>,
        /// The tools.
        tools: Vec<Arc<str>>,
        /// Their tokens.
        tokens: u64,
    },
    /// Tokens of a text or a medium: what was counted in this step.
    Count {
        /// [`Settings::digest`] of what was counted.
        of: u64,
        /// Its tokens.
        tokens: u64,
    },
    /// The most that a model call of this step may use.
    CallMost(CallMost),
}

/// The question that a setting answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    TokenLimit(Arc<str>),
    SpeculativeAt,
    Tokenizer(Arc<str>),
    MessageRules(Option<Arc<str>>),
    Profile(Option<Arc<str>>),
    ToolTokens(Arc<str>, Vec<Arc<str>>),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// By question: the last value, and the step that asked for it last.
    known: BTreeMap<Key, (Setting, u64)>,
    /// Token counts of this step.
    counts: BTreeMap<u64, u64>,
    /// To be recorded.
    fresh: Vec<Setting>,
    is_rebuilding: bool,
    step: u64,
}

impl Settings {
    /// Those of a run that is rebuilt: it goes by what it is told by [`Self::expect`].
    #[must_use]
    pub fn rebuilding() -> Self {
        Self {
            is_rebuilding: true,
            ..Self::default()
        }
    }

    /// The run goes on after it was rebuilt: by the configuration that there is now. What it went by before and nobody had
    /// recorded is to be: it was told something that no process carried out.
    pub fn go_on(&mut self) {
        self.is_rebuilding = false;
        self.next_step();
    }

    /// True if something is to be recorded.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// The run is told something.
    pub fn next_step(&mut self) {
        self.step += 1;
        self.counts.clear();
    }

    /// These were recorded of the step.
    pub fn expect(&mut self, recorded: &[Setting]) {
        for setting in recorded {
            match setting {
                Setting::Count { of, tokens } => drop(self.counts.insert(*of, *tokens)),
                Setting::CallMost(_) => {}
                setting => {
                    if let Some(key) = setting.key() {
                        self.known.insert(key, (setting.clone(), self.step));
                    }
                }
            }
        }
    }

    /// Takes the settings that are to be recorded: those requested since the last call.
    pub fn take_fresh(&mut self) -> Vec<Setting> {
        std::mem::take(&mut self.fresh)
    }

    /// The setting that a question of this key has: what it is now comes from `ask`.
    fn of(&mut self, ask: impl FnOnce() -> Setting, key: Key) -> Setting {
        match self.known.get(&key) {
            Some((known, step)) if self.is_rebuilding || *step == self.step => known.clone(),
            known => {
                let now = ask();
                if known.is_none_or(|(known, _)| *known != now) {
                    self.fresh.push(now.clone());
                }
                self.known.insert(key, (now.clone(), self.step));
                now
            }
        }
    }

    /// As [`super::World::token_limit`].
    pub fn token_limit(&mut self, workflow: &Arc<str>, ask: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let ask = || Setting::TokenLimit {
            workflow: Arc::clone(workflow),
            tokens: ask(),
        };
        match self.of(ask, Key::TokenLimit(Arc::clone(workflow))) {
            Setting::TokenLimit { tokens, .. } => tokens,
            _ => None,
        }
    }

    /// As [`super::World::speculative_at`].
    pub fn speculative_at(&mut self, ask: impl FnOnce() -> Option<f64>) -> Option<f64> {
        match self.of(|| Setting::SpeculativeAt(ask()), Key::SpeculativeAt) {
            Setting::SpeculativeAt(share) => share,
            _ => None,
        }
    }

    /// The name of a workflow's tokenizer.
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

    /// As [`super::World::message_rules`].
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

    /// As [`super::World::profile`].
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

    /// As [`super::World::tool_tokens`].
    pub fn tool_tokens(&mut self, workflow: &Arc<str>, tools: &[Arc<str>], ask: impl FnOnce() -> u64) -> u64 {
        let ask = || Setting::ToolTokens {
            workflow: Arc::clone(workflow),
            tools: tools.to_vec(),
            tokens: ask(),
        };
        match self.of(ask, Key::ToolTokens(Arc::clone(workflow), tools.to_vec())) {
            Setting::ToolTokens { tokens, .. } => tokens,
            _ => 0,
        }
    }

    /// Tokens of something, by its [`Self::digest`]. Each text is counted in one step or two, so a count is recorded in each.
    pub fn count(&mut self, of: u64, ask: impl FnOnce() -> u64) -> u64 {
        if let Some(tokens) = self.counts.get(&of) {
            return *tokens;
        }
        let tokens = ask();
        self.counts.insert(of, tokens);
        self.fresh.push(Setting::Count { of, tokens });
        tokens
    }

    /// Tells texts apart, by who counts them and in every process alike: FNV-1a.
    pub fn digest(tokenizer: &str, text: &str) -> u64 {
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
            Self::Tokenizer { workflow, .. } => Key::Tokenizer(Arc::clone(workflow)),
            Self::MessageRules { profile, .. } => Key::MessageRules(profile.clone()),
            Self::Profile { named, .. } => Key::Profile(named.clone()),
            Self::ToolTokens { workflow, tools, .. } => Key::ToolTokens(Arc::clone(workflow), tools.clone()),
            Self::Count { .. } | Self::CallMost(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_recorded_once_and_when_it_changes_and_stays_for_a_step() {
        let (mut settings, workflow) = (Settings::default(), Arc::from("w"));
        assert_eq!(settings.token_limit(&workflow, || Some(5)), Some(5));
        assert_eq!(settings.token_limit(&workflow, || Some(6)), Some(5), "the same step");
        assert_eq!(settings.take_fresh().len(), 1);
        settings.next_step();
        assert_eq!(settings.token_limit(&workflow, || Some(5)), Some(5));
        assert_eq!(settings.take_fresh(), [], "as before");
        settings.next_step();
        assert_eq!(settings.token_limit(&workflow, || None), None);
        assert_eq!(settings.take_fresh().len(), 1, "it has changed");
    }

    #[test]
    fn a_run_that_is_rebuilt_goes_by_its_record_and_one_that_goes_on_by_what_is_there() {
        let workflow: Arc<str> = "w".into();
        let mut live = Settings::default();
        live.token_limit(&workflow, || Some(5));
        let digest = |text| Settings::digest("words", text);
        live.count(digest("a text"), || 2);
        let record = live.take_fresh();
        let text = serde_json::to_string(&record).unwrap();
        let record: Vec<Setting> = serde_json::from_str(&text).unwrap();
        let mut again = Settings::rebuilding();
        again.next_step();
        again.expect(&record);
        assert_eq!(again.token_limit(&workflow, || unreachable!()), Some(5));
        assert_eq!(again.count(digest("a text"), || unreachable!()), 2);
        assert_eq!(again.count(digest("another"), || 3), 3, "nobody recorded it");
        again.go_on();
        assert_eq!(again.token_limit(&workflow, || Some(7)), Some(7));
        let fresh = again.take_fresh();
        assert_eq!(fresh.len(), 2, "what nobody had recorded, and the change: {fresh:?}");
    }
}
