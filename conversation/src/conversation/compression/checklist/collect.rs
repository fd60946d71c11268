//! Collects the statements of messages and of earlier records.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use pirn_definition::message::{Message, Role};

use super::statements::{first_sentence, statements_of};
use super::subject::Subject;
use super::{Checklist, Section, Statement};

/// Number of messages that are quoted if a conversation has no statements.
const MOST_LAST: usize = 3;

/// Statements of messages in order, of which newer ones have replaced older ones.
#[derive(Default)]
struct Collection {
    /// Replaced statements are empty.
    statements: Vec<Option<Statement>>,
    /// Last statement by the hash of its text, of its form, and of its subject.
    known: HashMap<(u8, u64), usize, FixedState>,
}

/// Message of the collected statements.
pub(in super::super) struct Collected<'m> {
    pub(in super::super) message: &'m Message,
    pub(in super::super) id: String,
    pub(in super::super) is_summary: bool,
}

/// Returns the statements of `messages`, the oldest first. Summaries contribute their record.
pub(in super::super) fn collected<'m>(messages: impl Iterator<Item = Collected<'m>>) -> Checklist {
    let mut all = Collection::default();
    let mut record = Checklist::default();
    let (mut found, mut last) = (Vec::new(), Vec::new());
    for Collected {
        message,
        id,
        is_summary,
    } in messages
    {
        if let Some(earlier) = Checklist::of(message) {
            record.budget = record.budget.max(earlier.budget);
            record.dropped = record.dropped.saturating_add(earlier.dropped);
            record.summary = earlier.summary.or(record.summary);
            for (kind, facts) in earlier.facts {
                record.facts.entry(kind).or_default().extend(facts);
            }
            found.extend(earlier.statements);
        } else if is_summary {
            // A model has written it, although the message is one of the user: its sentences are no rules.
            record.summary = Some(message.content.clone());
        } else if !message.sub_agent_internal {
            // Messages that are hidden from a main agent must not become visible by their statements.
            statements_of(message, &id, &mut found);
            if found.is_empty()
                && let Some(first) = first_sentence(message, &id)
            {
                // Bounded, because only the newest ones are of use.
                last.drain(..last.len().saturating_sub(MOST_LAST - 1));
                last.push(first);
            }
        }
        found.drain(..).for_each(|statement| all.add(statement));
    }
    if all.statements.is_empty() {
        // A conversation without statements still has a topic.
        last.drain(..).for_each(|statement| all.add(statement));
    }
    record.statements = all.statements.into_iter().flatten().collect();
    record
}

impl Collection {
    fn add(&mut self, mut new: Statement) {
        let subject = Subject::of(&new);
        let (text, form, of) = (hash(0, &subject.text), hash(1, &subject.form), hash(2, &subject.of));
        // A model that repeats the user adds nothing.
        if self.is_of_higher(text, &new) {
            return;
        }
        if let Some((at, old)) = self.last(text, &new) {
            // The newer position: a statement that is repeated is still of interest.
            new.ids = merged(&old.ids, &new.ids);
            new.is_binding |= old.is_binding;
            new.weight = new.weight.max(old.weight);
            if old.is_binding || old.weight >= new.weight {
                new.section = old.section;
            }
            self.statements[at] = None;
        }
        let has_form = !subject.form.is_empty();
        let has_subject = !subject.of.is_empty() && subject.is_correction;
        let replaced = if has_form { self.last(form, &new) } else { None };
        // A remark about the subject of a binding statement must not delete it: in doubt, both are retained.
        let may_replace =
            |old: &Statement| !old.is_binding || subject.is_labelled || new.is_binding && subject.form.contains('#');
        let replaced = replaced.or_else(|| {
            let last = if has_subject { self.last(of, &new) } else { None };
            last.filter(|(_, old)| may_replace(old))
        });
        if let Some((at, old)) = replaced {
            // A corrected rule is still a rule.
            if old.is_binding || new.section == Section::Corrections {
                new.section = old.section;
            }
            new.is_binding |= old.is_binding;
            new.weight = new.weight.max(old.weight);
            self.statements[at] = None;
        }
        let keys = [Some(text), has_form.then_some(form), has_form.then_some(of)];
        for key in keys.into_iter().flatten() {
            // The user's statement remains the one that the user can replace, and so does a binding one.
            let is_bound = key == of && !new.is_binding && self.last(of, &new).is_some_and(|(_, old)| old.is_binding);
            if !is_bound && !self.is_of_higher(key, &new) {
                self.known.insert(key, self.statements.len());
            }
        }
        self.statements.push(Some(new));
    }

    /// Returns true if the last statement with this key has an author that `new` cannot contradict.
    fn is_of_higher(&self, key: (u8, u64), new: &Statement) -> bool {
        let old = self.known.get(&key).and_then(|at| self.statements[*at].as_ref());
        old.is_some_and(|old| authority(old.from) > authority(new.from))
    }

    /// Returns the last statement with this key that `new` may replace.
    fn last(&self, key: (u8, u64), new: &Statement) -> Option<(usize, Statement)> {
        let at = *self.known.get(&key)?;
        let old = self.statements[at].as_ref()?;
        // A model or a tool result must not change what the user has said.
        (authority(new.from) >= authority(old.from)).then(|| (at, old.clone()))
    }
}

fn authority(role: Role) -> u8 {
    match role {
        Role::Tool => 0,
        Role::Assistant => 1,
        Role::User | Role::System => 2,
    }
}

/// Returns the first and the last id.
fn merged(old: &[String], new: &[String]) -> Vec<String> {
    let mut ids: Vec<String> = old.first().into_iter().chain(new.last()).cloned().collect();
    ids.dedup();
    ids
}

fn hash(kind: u8, text: &str) -> (u8, u64) {
    (kind, FixedState::default().hash_one(text))
}
