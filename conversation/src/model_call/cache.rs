//! Observed use of a provider's prompt cache: compares the cached tokens of each reply with those of the request before.
//!
//! A provider could read from its cache what a request shares with the request before: at most the smaller one of both. The
//! cache has *collapsed* if it was 1,024 tokens or more, and less than half of them were read. The reason is that of the larger
//! part of the tokens that were not read:
//!
//! | part | reason |
//! |---|---|
//! | outside of the predicted stable prefix, after a compression | [`CacheReason::Compacted`] |
//! | outside of the predicted stable prefix, otherwise | [`CacheReason::PrefixChanged`] |
//! | within the stable prefix, and longer than [`CACHE_LIFETIME_MS`] after the request before | [`CacheReason::Expired`] |
//! | within the stable prefix, otherwise | [`CacheReason::Unexpected`] |
//!
//! A provider without figures is [`CacheReason::Unreported`], once for each profile. One that has reported a figure before and omits it
//! has read nothing. The first request of a conversation, and the first one after a change of the profile, are not compared.
//!
//! Times are arguments. The work does not depend on the length of the request.

use pirn_definition::Millis;
use serde::{Deserialize, Serialize};

use crate::conversation::{Cost, PrefixBreak};

/// Smallest number of tokens that providers cache.
const SHORTEST: u64 = 1_024;

/// Time in milliseconds for which providers retain an unused prefix at least: five minutes.
pub const CACHE_LIFETIME_MS: Millis = 300_000;

/// Maximum number of profiles of a conversation with remembered figures.
const MAX_PROFILES: usize = 16;

/// Use of the provider's prompt cache by one request, as reported with its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheUse {
    /// Input tokens of the request, including those read from the cache.
    pub sent: u64,
    /// Tokens read from the cache; `None` if the provider reported no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<u64>,
    /// Extra cost of a token that is not read from the cache; `None` for a profile without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub premium: Option<Cost>,
}

/// Reason that a provider read less than expected from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheReason {
    /// A compression changed the prefix.
    Compacted,
    /// The request before was longer ago than providers retain a prefix.
    Expired,
    /// The prefix differs from that of the request before: other tools, another system message, an edited history.
    PrefixChanged,
    /// The provider reports no figures.
    Unreported,
    /// No other reason applies.
    Unexpected,
}

impl CacheReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [
        Self::Compacted,
        Self::Expired,
        Self::PrefixChanged,
        Self::Unreported,
        Self::Unexpected,
    ];

    /// Returns the word used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compacted => "compacted",
            Self::Expired => "expired",
            Self::PrefixChanged => "prefix_changed",
            Self::Unreported => "unreported",
            Self::Unexpected => "unexpected",
        }
    }
}

/// A prepared request with its predicted prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedRequest {
    /// Estimated tokens of the prefix that the request shares with the one before.
    pub stable: u64,
    /// Estimated tokens of the request.
    pub tokens: u64,
    /// Index of the first message that differs from the request before, and the cause.
    pub broken: Option<(usize, PrefixBreak)>,
    /// Time of the preparation.
    pub at: Millis,
}

/// Comparison of a reply's figures with the request before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheObservation {
    /// Tokens that the provider could have read, if nothing had changed.
    pub expected: u64,
    /// Tokens of `expected` within the predicted stable prefix.
    pub stable: u64,
    /// Tokens read.
    pub read: u64,
    /// Reason of the collapse; `None` if at least half was read.
    pub reason: Option<CacheReason>,
    /// Tokens of a collapse that were not read. 0 if the provider reports no figures.
    pub lost: u64,
    /// Extra cost of these tokens, if the profile has prices.
    pub cost: Option<Cost>,
    /// Index of the first message that differs from the request before, and the cause.
    pub broken: Option<(usize, PrefixBreak)>,
    /// Time since the reply to the request before, in milliseconds.
    pub idle_ms: Millis,
}

/// A request that the provider answered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct AnsweredRequest {
    profile: u64,
    tokens: u64,
    at: Millis,
}

/// Cache use of a conversation. The module documentation has the rules.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheWatch {
    answered: Option<AnsweredRequest>,
    /// Prepared request without a reply.
    pending: Option<PredictedRequest>,
    is_compacted: bool,
    /// Figures in the replies of each profile.
    profiles: Vec<(u64, Figures)>,
}

/// Cached tokens in the replies of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Figures {
    /// No reply had any.
    Missing,
    /// No reply had any, which was observed.
    MissingObserved,
    /// A reply had some.
    Reported,
}

impl CacheWatch {
    /// Returns true if the profile of the last reply has reported figures, so that predictions are of use.
    pub fn needs_prediction(&self) -> bool {
        self.answered.is_some_and(|last| self.reports(last.profile))
    }

    fn reports(&self, profile: u64) -> bool {
        self.profiles.contains(&(profile, Figures::Reported))
    }

    /// Records a prepared request. `again` means that it replaces the last one, which was not sent.
    pub fn prepared(&mut self, request: PredictedRequest, again: bool) {
        let unanswered = self.pending.take().filter(|_| !again);
        // A request that failed was compared with the answered one, and this one with the failed one: the lesser prefix counts.
        let worst = unanswered.filter(|before| before.stable < request.stable);
        self.pending = Some(PredictedRequest {
            stable: worst.map_or(request.stable, |before| before.stable),
            broken: worst.map_or(request.broken, |before| before.broken),
            ..request
        });
    }

    /// Records that a compression changed the conversation.
    pub fn compacted(&mut self) {
        self.is_compacted = true;
    }

    /// Records a reply. Returns the comparison with the request before, if there is one.
    pub fn answered(&mut self, profile: u64, used: &CacheUse, at: Millis) -> Option<CacheObservation> {
        let sent = AnsweredRequest {
            profile,
            tokens: used.sent,
            at,
        };
        let (before, pending) = (self.answered.replace(sent), self.pending.take());
        let was_compacted = std::mem::take(&mut self.is_compacted);
        self.note(profile, used.read.is_some());
        // Another model has another cache.
        let before = before.filter(|before| before.profile == profile)?;
        let expected = before.tokens.min(used.sent);
        if expected < SHORTEST {
            return None;
        }
        let unexplained = CacheObservation {
            expected,
            stable: expected,
            read: 0,
            reason: None,
            lost: 0,
            cost: None,
            broken: None,
            idle_ms: pending.map_or(at, |pending| pending.at).saturating_sub(before.at),
        };
        let Some(read) = used.read.or(self.reports(profile).then_some(0)) else {
            let mut profiles = self.profiles.iter_mut();
            let (_, figures) = profiles.find(|known| **known == (profile, Figures::Missing))?;
            *figures = Figures::MissingObserved;
            return Some(CacheObservation {
                reason: Some(CacheReason::Unreported),
                ..unexplained
            });
        };
        // Predictions start with the reply that has the first figure.
        let pending = pending?;
        let observed = CacheObservation {
            stable: scaled(pending.stable, used.sent, pending.tokens).min(expected),
            read,
            broken: pending.broken,
            ..unexplained
        };
        let lost = expected.saturating_sub(read);
        if read.saturating_mul(2) >= expected {
            return Some(observed);
        }
        let changed = expected - observed.stable;
        let reason = if changed >= observed.stable.saturating_sub(read) {
            match observed.broken {
                // Tools and format precede the messages: a compression does not change them.
                Some((_, PrefixBreak::Profile | PrefixBreak::Tools | PrefixBreak::ResponseFormat)) => {
                    CacheReason::PrefixChanged
                }
                Some(_) | None if was_compacted => CacheReason::Compacted,
                Some(_) | None => CacheReason::PrefixChanged,
            }
        } else if observed.idle_ms > CACHE_LIFETIME_MS {
            CacheReason::Expired
        } else {
            CacheReason::Unexpected
        };
        Some(CacheObservation {
            reason: Some(reason),
            lost,
            cost: used.premium.map(|premium| premium.times(lost)),
            ..observed
        })
    }

    /// Records whether a reply of the profile had a figure.
    fn note(&mut self, profile: u64, reports: bool) {
        let is_full = self.profiles.len() == MAX_PROFILES;
        let new = if reports { Figures::Reported } else { Figures::Missing };
        match self.profiles.iter_mut().find(|(known, _)| *known == profile) {
            Some((_, known)) if reports => *known = new,
            Some(_) => {}
            // Without room, missing figures of the profile are never reported.
            None if is_full => {}
            None => self.profiles.push((profile, new)),
        }
    }
}

/// Converts an estimate to tokens of the provider, which counted `sent` for the estimated `total`.
fn scaled(estimate: u64, sent: u64, total: u64) -> u64 {
    let scaled = u128::from(estimate) * u128::from(sent) / u128::from(total.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Use of prompt caches by the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheReport {
    /// Number of requests that were compared with the request before. Replies without figures are not counted.
    pub compared: u64,
    /// Tokens that the providers could have read for these requests.
    pub expected_tokens: u64,
    /// Tokens that they read, at most the expected ones.
    pub read_tokens: u64,
    /// Collapses by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collapses: Vec<CacheCollapses>,
}

/// Collapses of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheCollapses {
    /// The reason.
    pub reason: CacheReason,
    /// Number of collapses.
    pub count: u64,
    /// Tokens that were not read from the cache.
    pub lost_tokens: u64,
    /// Extra cost of these tokens, for profiles with prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl CacheReport {
    /// Adds a comparison.
    pub fn add(&mut self, observed: &CacheObservation) {
        if observed.reason != Some(CacheReason::Unreported) {
            self.compared += 1;
            self.expected_tokens = self.expected_tokens.saturating_add(observed.expected);
            let read = observed.read.min(observed.expected);
            self.read_tokens = self.read_tokens.saturating_add(read);
        }
        let Some(reason) = observed.reason else { return };
        let at = match self.collapses.binary_search_by_key(&reason, |known| known.reason) {
            Ok(at) => at,
            Err(at) => {
                let none = CacheCollapses {
                    reason,
                    count: 0,
                    lost_tokens: 0,
                    cost: None,
                };
                self.collapses.insert(at, none);
                at
            }
        };
        let Some(of_reason) = self.collapses.get_mut(at) else {
            return;
        };
        of_reason.count += 1;
        of_reason.lost_tokens = of_reason.lost_tokens.saturating_add(observed.lost);
        of_reason.cost = match (of_reason.cost, observed.cost) {
            (Some(sum), Some(more)) => Some(sum.plus(more)),
            (sum, None) => sum,
            (None, more) => more,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROFILE: u64 = 7;

    fn used(sent: u64, read: u64) -> CacheUse {
        CacheUse {
            sent,
            read: Some(read),
            premium: None,
        }
    }

    fn predicted(stable: u64, tokens: u64, broken: Option<PrefixBreak>, at: Millis) -> PredictedRequest {
        PredictedRequest {
            stable,
            tokens,
            broken: broken.map(|why| (3, why)),
            at,
        }
    }

    /// Returns a watch whose last request has `tokens`, answered at time 0.
    fn after(tokens: u64) -> CacheWatch {
        let mut watch = CacheWatch::default();
        assert_eq!(watch.answered(PROFILE, &used(tokens, 0), 0), None);
        watch
    }

    fn reason(watch: &mut CacheWatch, read: u64, at: Millis) -> Option<CacheReason> {
        watch.answered(PROFILE, &used(10_000, read), at)?.reason
    }

    #[test]
    fn a_collapse_has_the_reason_of_the_larger_part() {
        // The prefix is stable, and most of it is read.
        let mut watch = after(9_000);
        watch.prepared(predicted(4_500, 5_000, None, 10), false);
        assert_eq!(reason(&mut watch, 8_960, 20), None);
        // Stable and not read: no other reason applies.
        let mut watch = after(9_000);
        watch.prepared(predicted(4_500, 5_000, None, CACHE_LIFETIME_MS), false);
        assert_eq!(
            reason(&mut watch, 0, CACHE_LIFETIME_MS + 9),
            Some(CacheReason::Unexpected)
        );
        // Again, after the lifetime of the cache.
        let mut watch = after(9_000);
        watch.prepared(predicted(4_500, 5_000, None, CACHE_LIFETIME_MS + 1), false);
        assert_eq!(reason(&mut watch, 0, CACHE_LIFETIME_MS + 1), Some(CacheReason::Expired));
        // Changed at the start, with and without a compression.
        for (why, compacted, expected) in [
            (PrefixBreak::History, true, CacheReason::Compacted),
            (PrefixBreak::History, false, CacheReason::PrefixChanged),
            (PrefixBreak::Tools, true, CacheReason::PrefixChanged),
            (PrefixBreak::System, false, CacheReason::PrefixChanged),
        ] {
            let mut watch = after(9_000);
            if compacted {
                watch.compacted();
            }
            watch.prepared(predicted(500, 5_000, Some(why), 10), false);
            assert_eq!(reason(&mut watch, 1_000, 20), Some(expected), "{why:?}");
            // The compression explains one request only.
            watch.prepared(predicted(500, 5_000, Some(PrefixBreak::History), 30), false);
            assert_eq!(reason(&mut watch, 1_000, 40), Some(CacheReason::PrefixChanged));
        }
    }

    #[test]
    fn a_provider_without_figures_is_reported_once_for_each_profile() {
        let mut watch = CacheWatch::default();
        let none = CacheUse {
            sent: 5_000,
            ..CacheUse::default()
        };
        let reasons = |watch: &mut CacheWatch, profile| {
            let all = (0..4).map(|at| watch.answered(profile, &none, at)?.reason);
            all.collect::<Vec<_>>()
        };
        assert_eq!(
            reasons(&mut watch, 1),
            [None, Some(CacheReason::Unreported), None, None]
        );
        assert_eq!(
            reasons(&mut watch, 2),
            [None, Some(CacheReason::Unreported), None, None]
        );
        assert_eq!(reasons(&mut watch, 1), [None; 4]);
        assert!(!watch.needs_prediction());
        // A figure that is omitted later is 0.
        let mut watch = after(5_000);
        watch.prepared(predicted(4_000, 5_000, None, 0), false);
        let seen = watch.answered(PROFILE, &none, 1).expect("compared");
        assert_eq!(seen.reason, Some(CacheReason::Unexpected));
    }

    #[test]
    fn the_cost_of_a_collapse_is_that_of_the_tokens_that_were_not_read() {
        let mut watch = after(9_000);
        watch.prepared(predicted(5_000, 5_000, None, 1), false);
        let premium = Cost {
            pico: 2_700_000,
            ..Cost::default()
        };
        let priced = CacheUse {
            premium: Some(premium),
            ..used(10_000, 1_000)
        };
        let seen = watch.answered(PROFILE, &priced, 2).expect("compared");
        assert_eq!(
            (seen.lost, seen.cost.map(|cost| cost.pico)),
            (8_000, Some(21_600_000_000))
        );
        let mut report = CacheReport::default();
        report.add(&seen);
        report.add(&seen);
        assert_eq!(report.collapses.len(), 1);
        assert_eq!(
            (report.collapses[0].count, report.collapses[0].lost_tokens),
            (2, 16_000)
        );
        assert_eq!(
            (report.compared, report.expected_tokens, report.read_tokens),
            (2, 18_000, 2_000)
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Prepares a request: share of the stable prefix in percent, and the share of a replacement, if one follows.
        Prepared {
            stable: u64,
            replaced: Option<u64>,
            after_ms: u64,
        },
        Compacted,
        Answered {
            sent: u64,
            read: Option<u64>,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..=100_u64, prop::option::of(0..=100_u64), 0..400_000_u64)
                .prop_map(|(stable, replaced, after_ms)| Step::Prepared { stable, replaced, after_ms }),
            1 => Just(Step::Compacted),
            4 => (500..9_000_u64, prop::option::weighted(0.9, 0..9_000_u64)).prop_map(|(sent, read)| Step::Answered { sent, read }),
        ];
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        /// The oracle records every event since the last reply, and derives the verdict from the list.
        #[test]
        fn a_verdict_follows_from_the_events_since_the_last_reply(steps in steps()) {
            let mut watch = CacheWatch::default();
            let (mut now, mut last) = (0, None::<(u64, Millis)>);
            // Shares of the requests that were sent since the last reply, each with its time.
            let mut sent_since: Vec<(u64, Millis)> = Vec::new();
            let (mut compacted, mut has_figure) = (false, false);
            let mut told = false;
            for step in steps {
                now += 1_000;
                match step {
                    Step::Compacted => {
                        compacted = true;
                        watch.compacted();
                    }
                    Step::Prepared { stable, replaced, after_ms } => {
                        now += after_ms;
                        watch.prepared(predicted(stable, 100, Some(PrefixBreak::History), now), false);
                        let mut counts = stable;
                        // Only the first request since a reply is replaced here: then nothing was sent before.
                        if let (Some(again), true) = (replaced, sent_since.is_empty()) {
                            watch.prepared(predicted(again, 100, Some(PrefixBreak::History), now), true);
                            counts = again;
                        }
                        sent_since.push((counts, now));
                    }
                    Step::Answered { sent, read } => {
                        let seen = watch.answered(PROFILE, &used_or(sent, read), now);
                        has_figure |= read.is_some();
                        let reason = seen.and_then(|seen| seen.reason);
                        let expected = last.map(|(tokens, _): (u64, _)| tokens.min(sent)).filter(|most| *most >= SHORTEST);
                        match (expected, read.or(has_figure.then_some(0)), sent_since.last()) {
                            (None, _, _) | (Some(_), Some(_), None) => prop_assert_eq!(seen, None),
                            (Some(_), None, _) => {
                                prop_assert_eq!(reason, (!told).then_some(CacheReason::Unreported));
                                told = true;
                            }
                            (Some(expected), Some(read), Some((_, prepared_at))) => {
                                let share = sent_since.iter().map(|(share, _)| *share).min().unwrap_or_default();
                                let stable = (share * sent / 100).min(expected);
                                let idle = prepared_at - last.map_or(0, |(_, at)| at);
                                let wanted = if read * 2 >= expected {
                                    None
                                } else if expected - stable >= stable.saturating_sub(read) {
                                    Some(if compacted { CacheReason::Compacted } else { CacheReason::PrefixChanged })
                                } else if idle > CACHE_LIFETIME_MS {
                                    Some(CacheReason::Expired)
                                } else {
                                    Some(CacheReason::Unexpected)
                                };
                                prop_assert_eq!(reason, wanted);
                                let lost = if wanted.is_some() { expected - read } else { 0 };
                                prop_assert_eq!(seen.map(|seen| seen.lost), Some(lost));
                            }
                        }
                        last = Some((sent, now));
                        sent_since.clear();
                        compacted = false;
                    }
                }
            }
        }
    }

    fn used_or(sent: u64, read: Option<u64>) -> CacheUse {
        CacheUse {
            sent,
            read,
            premium: None,
        }
    }
}
