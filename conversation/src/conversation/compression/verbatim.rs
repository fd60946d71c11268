//! `keepFacts`: retains messages verbatim whose facts a summary lacks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use pirn_definition::message::Message;

use super::super::extractive::each_sentence;
use super::super::{MESSAGE_OVERHEAD, Tokenizer, message_cost};
use super::context::{FactKinds, FactStats};
use super::facts::{Fact, JudgedFact, KnownFacts, facts_of, judge_with};
use super::window::units;

/// Maximum number of facts that a record retains for later compressions.
const MOST_FACTS: usize = 4_000;
/// Maximum number of missing sentences.
const MOST_MISSING: usize = 40;
/// Maximum length of a missing sentence in bytes. Longer ones are data.
const MOST_BYTES: usize = 500;
/// Part of the token limit that messages retained for their facts use: one fourth.
const LIMIT_PART: u64 = 4;

/// Messages to summarize, with those retained so far.
pub(super) struct Verbatim<'a> {
    messages: &'a [Arc<Message>],
    facts: Vec<JudgedFact>,
    /// Indices in `facts` of the facts of each message.
    facts_at: Vec<Vec<usize>>,
    costs: Vec<u64>,
    summary: u64,
    /// Number of facts that are kept or that a message contains. The messages of the others have left in earlier compressions.
    reachable: usize,
    pub(super) stays: Vec<bool>,
}

impl<'a> Verbatim<'a> {
    /// `known` has the facts of messages that earlier compressions have replaced. Facts of messages for which `is_derived` is true are
    /// ignored.
    pub(super) fn new(
        messages: &'a [Arc<Message>],
        is_derived: impl Fn(&Message) -> bool,
        known: &KnownFacts,
        summary: &str,
        tokenizer: &dyn Tokenizer,
    ) -> Self {
        let originals = messages.iter().enumerate().filter(|(_, message)| !is_derived(message));
        // Once: reading all texts again for each candidate would be quadratic.
        let facts = judge_with(originals.map(|(place, message)| (place, &**message)), known, summary);
        // The reverse index of `JudgedFact::messages`, so that a message finds its facts without a search.
        let mut facts_at = vec![Vec::new(); messages.len()];
        for (number, fact) in facts.iter().enumerate() {
            for place in &fact.messages {
                facts_at[*place].push(number);
            }
        }
        let reachable = facts.iter().filter(|fact| fact.kept || !fact.messages.is_empty());
        Self {
            messages,
            reachable: reachable.count(),
            facts,
            facts_at,
            costs: messages
                .iter()
                .map(|message| message_cost(message, tokenizer))
                .collect(),
            summary: MESSAGE_OVERHEAD.saturating_add(tokenizer.count(summary)),
            stays: vec![false; messages.len()],
        }
    }

    /// Retains messages until the share `floor` of the reachable facts is reached, newest first. Skips messages without missing facts
    /// and those that do not fit: in a result that is smaller than before, or in one fourth of the token limit. A limit of 0 is none.
    pub(super) fn fill(&mut self, floor: f64, token_limit: u64) {
        let (mut kept, mut leaving) = (self.kept(), self.messages.len());
        // Without this bound, the retained messages of all rounds would exceed the limit that the compression enforces.
        let mut free = match token_limit {
            0 => u64::MAX,
            limit => limit / LIMIT_PART,
        };
        // The tokens of all messages that leave: each one that stays reduces the saving.
        let mut saved = self.costs.iter().copied().fold(0, u64::saturating_add);
        for unit in units(self.messages).into_iter().rev() {
            // Checked before each unit, so that no message stays without need.
            if self.is_reached(kept, floor) {
                return;
            }
            let cost = self.costs[unit.clone()].iter().copied().fold(0, u64::saturating_add);
            // With the summary, the result must have fewer messages and fewer tokens than before.
            let fits = leaving - unit.len() > 1 && saved.saturating_sub(cost) > self.summary && cost <= free;
            if self.has_lost(&unit) && fits {
                leaving -= unit.len();
                saved -= cost;
                free -= cost;
                kept += self.keep(unit);
            }
        }
    }

    fn has_lost(&self, unit: &Range<usize>) -> bool {
        let mut facts = self.facts_at[unit.clone()].iter().flatten();
        facts.any(|number| !self.facts[*number].kept)
    }

    /// Retains a unit and returns the number of facts gained.
    fn keep(&mut self, unit: Range<usize>) -> usize {
        self.stays[unit.clone()].fill(true);
        // Counts only facts that were missing: another message or the summary may have the others.
        let before = |fact: &mut JudgedFact| std::mem::replace(&mut fact.kept, true);
        let facts = self.facts_at[unit].iter().flatten();
        facts.filter(|number| !before(&mut self.facts[**number])).count()
    }

    fn kept(&self) -> usize {
        self.facts.iter().filter(|fact| fact.kept).count()
    }

    /// Returns true if the share of retained facts among the reachable ones is at least the floor. Always true without facts.
    fn is_reached(&self, kept: usize, floor: f64) -> bool {
        // Multiplied instead of divided, because there may be no facts.
        kept as f64 >= floor * self.reachable as f64
    }

    /// Returns the facts of all rounds.
    pub(super) fn known(&self) -> KnownFacts {
        let mut known = KnownFacts::new();
        for judged in self.facts.iter().take(MOST_FACTS) {
            let of_kind = known.entry(judged.fact.kind).or_default();
            of_kind.insert(judged.fact.text.clone());
        }
        known
    }

    /// Returns the sentences with facts that neither the summary nor a retained message contains, in order; none if the floor is met.
    pub(super) fn missing(&self, floor: f64) -> Vec<String> {
        if self.is_reached(self.kept(), floor) {
            return Vec::new();
        }
        let lost: BTreeSet<&Fact> = (self.facts.iter())
            .filter(|fact| !fact.kept)
            .map(|judged| &judged.fact)
            .collect();
        let mut missing = Vec::new();
        for (place, message) in self.messages.iter().enumerate().rev() {
            let facts = &self.facts_at[place];
            if self.stays[place] || !facts.iter().any(|number| !self.facts[*number].kept) {
                continue;
            }
            let mut of_message = Vec::new();
            for sentence in each_sentence(&message.content) {
                if sentence.len() <= MOST_BYTES && facts_of(sentence).iter().any(|fact| lost.contains(fact)) {
                    of_message.push(sentence.to_owned());
                }
            }
            missing.extend(of_message.into_iter().rev());
            if missing.len() >= MOST_MISSING {
                // Bounded, because the sentences are part of a request. The newest ones are retained.
                missing.truncate(MOST_MISSING);
                break;
            }
        }
        missing.reverse();
        missing
    }

    pub(super) fn facts(&self, floor: f64) -> FactStats {
        let kept = self.kept();
        let mut kinds = FactKinds::default();
        for judged in &self.facts {
            kinds.count(judged.fact.kind, judged.kept);
        }
        FactStats {
            total: self.facts.len() as u64,
            kept: kept as u64,
            verbatim: self.stays.iter().filter(|stays| **stays).count() as u64,
            // Of all facts: the figures compare with the original messages of all rounds.
            is_met: kept as f64 >= floor * self.facts.len() as f64,
            kinds,
        }
    }
}
