//! Selection of statements and of a summary within a budget, and their text.

use std::fmt::Write;

use pirn_definition::message::Role;

use super::super::super::Tokenizer;
use super::lines::label;
use super::quote::{quoted, shortened};
use super::statements::LABELLED;
use super::{Checklist, Section, Statement};

/// Minimum of a budget that is a share.
const LEAST: u64 = 128;
/// Minimum size of a quoted summary in tokens, even if binding statements use the whole budget.
const LEAST_SUMMARY: u64 = 48;
/// Part of the budget that a summary uses before statements without a label: one fourth.
const SUMMARY_PART: u64 = 4;

/// Limits of the quoted text.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Limits {
    /// Maximum number of tokens, or share of the tokens of the conversation.
    pub(in super::super) budget: Budget,
    /// Shares of the budget that a section can use before the others, in the order of [`Section::ALL`].
    pub(in super::super) floors: [f64; 9],
}

/// Maximum size of the quoted text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Budget {
    Tokens(u64),
    Share(f64),
}

impl Limits {
    pub(in super::super) const DEFAULT: Self = Self {
        budget: Budget::Share(0.2),
        // Rules and constraints need no floor: clear ones are always retained.
        floors: [0.0, 0.0, 0.1, 0.2, 0.15, 0.1, 0.05, 0.05, 0.25],
    };

    /// Returns the budget in tokens. `before` are the tokens of the visible messages, `limit` the token limit or 0, `earlier` the
    /// budget of the last record.
    fn tokens(&self, before: u64, limit: u64, earlier: u64) -> u64 {
        match self.budget {
            Budget::Tokens(tokens) => tokens,
            Budget::Share(share) => {
                let whole = if limit == 0 { before } else { before.min(limit) };
                // The product of two finite numbers that are not negative.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let tokens = (whole as f64 * share) as u64;
                // A later compression of a short conversation must not drop what the earlier one retained.
                tokens.max(LEAST).max(earlier)
            }
        }
    }
}

/// Size of a conversation before the compression, in tokens.
pub(in super::super) struct Size {
    pub(in super::super) visible: u64,
    pub(in super::super) limit: u64,
    /// Tokens of the earlier summaries, and of the other messages that are replaced.
    pub(in super::super) summaries: u64,
    pub(in super::super) messages: u64,
}

/// Drops the statements that do not fit, shortens the summary, and returns their text.
pub(in super::super) fn rendered(
    list: &mut Checklist,
    limits: &Limits,
    size: &Size,
    count: u64,
    tokenizer: &dyn Tokenizer,
) -> String {
    let budget = limits.tokens(size.visible, size.limit, list.budget);
    list.budget = list.budget.max(budget);
    // At most half of the new messages, so that the result is smaller even if every sentence is a statement.
    let budget = budget.min(size.summaries.saturating_add(size.messages / 2));
    let summary = list.summary.as_deref().map(|summary| tokenizer.count(&quoted(summary)));
    let reserved = summary.map_or(0, |tokens| tokens.min(budget / SUMMARY_PART));
    let floors = &limits.floors;
    let text_of_kept = |statements: &[Statement], kept: &[bool]| {
        let kept = statements.iter().zip(kept).filter(|(_, kept)| **kept);
        text_of(kept.map(|(one, _)| one), count)
    };
    let mut kept = select(&list.statements, floors, (budget, reserved), count, tokenizer);
    let unreserved = budget - reserved;
    loop {
        let text = text_of_kept(&list.statements, &kept);
        let size = tokenizer.count(&text);
        let newest = (0..kept.len()).rev().find(|at| {
            let one = &list.statements[*at];
            // Labelled statements take precedence over the summary.
            kept[*at] && !one.is_binding && (one.weight < LABELLED || size > budget)
        });
        match newest {
            Some(newest) if size > unreserved => kept[newest] = false,
            Some(_) | None => {
                let before = list.statements.len();
                let mut kept = kept.into_iter();
                list.statements.retain(|_| kept.next().unwrap_or(true));
                list.dropped = list.dropped.saturating_add((before - list.statements.len()) as u64);
                let left = budget.saturating_sub(size).max(LEAST_SUMMARY);
                list.summary = list
                    .summary
                    .take()
                    .and_then(|summary| shortened(summary, left, tokenizer));
                return match &list.summary {
                    Some(summary) => format!("{text}\n{}", quoted(summary)),
                    None => text,
                };
            }
        }
    }
}

/// Selects the statements: binding ones, then labelled ones, then those within the floors, then the others by section. The last two
/// leave the `reserved` part of the budget.
fn select(
    statements: &[Statement],
    floors: &[f64; 9],
    (budget, reserved): (u64, u64),
    count: u64,
    tokenizer: &dyn Tokenizer,
) -> Vec<bool> {
    let mut kept: Vec<bool> = statements.iter().map(|one| one.is_binding).collect();
    let binding = text_of(statements.iter().filter(|one| one.is_binding), count);
    let mut left = budget.saturating_sub(tokenizer.count(&binding));
    let cost = |at: usize| tokenizer.count(&line(&statements[at])).saturating_add(1);
    // The user has marked these as important: the newest first, before the floors.
    for at in (0..statements.len()).rev() {
        let one = &statements[at];
        if one.weight >= LABELLED && !one.is_binding && left > 0 {
            let cost = cost(at);
            if cost <= left {
                left -= cost;
                kept[at] = true;
            }
        }
    }
    let mut by_section: [Vec<usize>; 9] = Default::default();
    for (at, one) in statements.iter().enumerate().filter(|(at, _)| !kept[*at]) {
        by_section[one.section as usize].push(at);
    }
    left = left.saturating_sub(reserved);
    let whole = left;
    let mut rest = Vec::new();
    for (section, all) in Section::ALL.into_iter().zip(&mut by_section) {
        // The heaviest first, and of equals the newest.
        all.sort_by_key(|at| (std::cmp::Reverse(statements[*at].weight), std::cmp::Reverse(*at)));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let floor = (whole as f64 * floors[section as usize]) as u64;
        let mut used = if all.is_empty() {
            0
        } else {
            heading_cost(section, tokenizer)
        };
        for &at in all.iter() {
            // Counted only while there is room: a conversation may have many more statements than fit.
            if used >= floor.min(left) {
                rest.push(at);
                continue;
            }
            let cost = cost(at);
            if used + cost > floor.min(left) {
                rest.push(at);
                continue;
            }
            used += cost;
            kept[at] = true;
        }
        left = left.saturating_sub(used);
    }
    for at in rest {
        // Nothing useful fits in so few tokens.
        if left < 4 {
            break;
        }
        let cost = cost(at);
        if cost <= left {
            left -= cost;
            kept[at] = true;
        }
    }
    kept
}

fn heading_cost(section: Section, tokenizer: &dyn Tokenizer) -> u64 {
    tokenizer.count(heading(section)).saturating_add(2)
}

/// Returns the text of the statements, by section.
fn text_of<'s>(statements: impl Iterator<Item = &'s Statement>, count: u64) -> String {
    let mut by_section: [Vec<&Statement>; 9] = Default::default();
    for one in statements {
        by_section[one.section as usize].push(one);
    }
    let mut text = format!("[Quoted from {count} earlier messages]");
    for (section, all) in Section::ALL.into_iter().zip(by_section) {
        if all.is_empty() {
            continue;
        }
        // Cannot fail: writing to a `String` is infallible.
        let _ = write!(text, "\n{}:", heading(section));
        for one in all {
            text.push('\n');
            text.push_str(&line(one));
        }
    }
    text
}

fn heading(section: Section) -> &'static str {
    match section {
        Section::Rules => "Rules",
        Section::Constraints => "Constraints",
        Section::Corrections => "Corrections",
        Section::Goals => "Goals",
        Section::Preferences => "Preferences",
        Section::Decisions => "Decisions",
        Section::Questions => "Open questions",
        Section::Artifacts => "Files",
        Section::Facts => "Facts",
    }
}

/// Returns the quoted part of a statement.
pub(super) fn quoted_part(statement: &Statement) -> &str {
    match label(&statement.text) {
        // The heading of the section replaces the label. The record has the whole text.
        Some((section, text)) if section == statement.section && !text.is_empty() => text,
        Some(_) | None => statement.text.as_str(),
    }
}

fn line(statement: &Statement) -> String {
    let text = quoted_part(statement);
    // The author is named unless it is the user, because a claim of a model or a tool is not an order.
    match statement.from {
        Role::User | Role::System => format!("- {text}"),
        Role::Assistant | Role::Tool => format!("- ({}) {text}", statement.from.as_str()),
    }
}
