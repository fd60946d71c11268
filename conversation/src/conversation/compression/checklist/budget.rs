//! Selection of statements and of a summary within a budget, and their text.

use std::cmp::Reverse;
use std::fmt::Write;

use pirn_definition::message::Role;

use super::super::super::Tokenizer;
use super::lines::label;
use super::quote::{quoted, shortened};
use super::statements::LABELLED;
use super::subject::Topic;
use super::{Checklist, Section, Statement};

/// Minimum of a budget that is a share.
const LEAST: u64 = 128;
/// Minimum size of a quoted summary in tokens, even if binding statements use the whole budget.
const LEAST_SUMMARY: u64 = 48;
/// Number of the newest labelled statements of a section that are compared with each other.
const MOST_TOPICS: usize = 100;
/// Number of messages for which the text reserves digits.
const MOST_DIGITS: u64 = 9_999;
/// Minimum number of tokens of a line.
const LEAST_LINE: u64 = 4;
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
    let mut selection = Selection::new(&list.statements, count, tokenizer);
    let labelled = selection.labelled();
    selection.fill(labelled, budget);
    let rest = selection.add_floors(&limits.floors, budget - reserved);
    selection.fill(rest, budget - reserved);
    let (text, size) = (selection.text(count), selection.size);
    let before = list.statements.len();
    let mut kept = selection.kept.into_iter();
    list.statements.retain(|_| kept.next().unwrap_or(true));
    list.dropped = list.dropped.saturating_add((before - list.statements.len()) as u64);
    let left = budget.saturating_sub(size).max(LEAST_SUMMARY);
    list.summary = list
        .summary
        .take()
        .and_then(|summary| shortened(summary, left, tokenizer));
    match &list.summary {
        Some(summary) => format!("{text}\n{}", quoted(summary)),
        None => text,
    }
}

/// Statements of which the text fits in a budget: binding ones, then labelled ones, then those within the floors, then the others by
/// section.
struct Selection<'s> {
    statements: &'s [Statement],
    /// Number of quoted messages.
    count: u64,
    tokenizer: &'s dyn Tokenizer,
    kept: Vec<bool>,
    /// Statements that the last selection added, the most important first.
    added: Vec<usize>,
    /// Number of tokens of the text, or an upper bound.
    size: u64,
    /// Tokens of the lines that were counted, by statement.
    costs: Vec<Option<u64>>,
}

impl<'s> Selection<'s> {
    /// Selects the binding statements, which may exceed the budget.
    fn new(statements: &'s [Statement], count: u64, tokenizer: &'s dyn Tokenizer) -> Self {
        let mut new = Self {
            statements,
            count,
            tokenizer,
            kept: statements.iter().map(|one| one.is_binding).collect(),
            added: Vec::new(),
            size: 0,
            costs: vec![None; statements.len()],
        };
        new.measure();
        new
    }

    /// Returns the statements that the user has marked as important by a label: the newest first, and those after the others that a
    /// newer one restates. The newer one probably has the current value, but only an equal subject proves that.
    fn labelled(&self) -> Vec<usize> {
        let mut newer: [Vec<Topic>; 9] = Default::default();
        let (mut order, mut restated) = (Vec::new(), Vec::new());
        for (at, one) in self.statements.iter().enumerate().rev() {
            if one.weight < LABELLED || self.kept[at] {
                continue;
            }
            let newer = &mut newer[one.section as usize];
            // Bounded, because each statement is compared with all newer ones of its section.
            let topic = (newer.len() < MOST_TOPICS).then(|| Topic::of(&one.text));
            match &topic {
                Some(topic) if newer.iter().any(|newer| topic.resembles(newer)) => restated.push(at),
                Some(_) | None => order.push(at),
            }
            newer.extend(topic);
        }
        order.extend(restated);
        order
    }

    /// Adds statements up to the floor of each section. Returns the others, the most important first.
    fn add_floors(&mut self, floors: &[f64; 9], most: u64) -> Vec<usize> {
        let mut by_section: [Vec<usize>; 9] = Default::default();
        for (at, one) in self.statements.iter().enumerate().filter(|(at, _)| !self.kept[*at]) {
            by_section[one.section as usize].push(at);
        }
        let whole = most.saturating_sub(self.size);
        let mut rest = Vec::new();
        for (mut all, floor) in by_section.into_iter().zip(floors) {
            // The heaviest first, and of equals the newest.
            all.sort_by_key(|at| (Reverse(self.statements[*at].weight), Reverse(*at)));
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let floor = (whole as f64 * floor) as u64;
            rest.extend(self.add(&all, most.min(self.size.saturating_add(floor))));
        }
        rest
    }

    /// Adds the statements that fit, in this order.
    fn fill(&mut self, mut order: Vec<usize>, most: u64) {
        loop {
            let before = order.len();
            order = self.add(&order, most);
            self.measure();
            // The lines are rounded up to whole tokens, so that their sum leaves room for more of them.
            if order.len() == before || self.size > most {
                break;
            }
        }
        // A tokenizer may count more tokens in a text than in its lines.
        while self.size > most
            && let Some(last) = self.added.pop()
        {
            self.kept[last] = false;
            self.measure();
        }
        self.added.clear();
    }

    /// Adds statements by an upper bound of their tokens, and returns those that do not fit.
    fn add(&mut self, order: &[usize], most: u64) -> Vec<usize> {
        let mut has_heading = [false; 9];
        for (one, _) in self.statements.iter().zip(&self.kept).filter(|(_, kept)| **kept) {
            has_heading[one.section as usize] = true;
        }
        let mut rest = Vec::new();
        for &at in order {
            let one = &self.statements[at];
            let has_heading = &mut has_heading[one.section as usize];
            // Counted only while there is room: a conversation may have many more statements than fit.
            let cost = (self.size.saturating_add(LEAST_LINE) <= most).then(|| {
                let heading = if *has_heading {
                    0
                } else {
                    heading_cost(one.section, self.tokenizer)
                };
                let of_line = self.costs[at].get_or_insert_with(|| self.tokenizer.count(&line(one)).saturating_add(1));
                of_line.saturating_add(heading)
            });
            match cost.map(|cost| self.size.saturating_add(cost)) {
                Some(size) if size <= most => {
                    self.size = size;
                    self.kept[at] = true;
                    self.added.push(at);
                    *has_heading = true;
                }
                Some(_) | None => rest.push(at),
            }
        }
        rest
    }

    fn text(&self, count: u64) -> String {
        let kept = self.statements.iter().zip(&self.kept).filter(|(_, kept)| **kept);
        text_of(kept.map(|(one, _)| one), count)
    }

    fn measure(&mut self) {
        // More digits in the number of messages must not displace a statement in a later compression.
        self.size = self.tokenizer.count(&self.text(self.count.max(MOST_DIGITS)));
    }
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

#[cfg(test)]
mod tests {
    use super::super::super::super::Estimator;
    use super::*;

    /// Statements of a user in several languages, with values of their own.
    fn statements(count: usize, weight: u8) -> Vec<Statement> {
        let texts = [
            (Section::Goals, "Goal: the import of batch {} works."),
            (Section::Preferences, "Präferenz: Antworten zu {} ohne Tabellen."),
            (Section::Facts, "Fait : le dépôt {} ferme à midi."),
            (Section::Goals, "目标：完成 {} 的测试。"),
            (Section::Decisions, "Decisión: el pedido {} va por tren."),
        ];
        let of = |at: usize| {
            let (section, text) = texts[at % texts.len()];
            let text = text.replace("{}", &format!("AX-{}", 100 + at));
            Statement {
                section,
                text,
                ids: Vec::new(),
                from: Role::User,
                is_binding: false,
                weight,
            }
        };
        (0..count).map(of).collect()
    }

    /// Returns the kept statements and the tokens of their text.
    fn kept(statements: &[Statement], budget: u64, count: u64) -> (Vec<Statement>, u64) {
        let mut list = Checklist {
            statements: statements.to_vec(),
            ..Checklist::default()
        };
        let limits = Limits {
            budget: Budget::Tokens(budget),
            ..Limits::DEFAULT
        };
        let size = Size {
            visible: 10_000,
            limit: 0,
            summaries: 0,
            messages: 10_000,
        };
        let text = rendered(&mut list, &limits, &size, count, &Estimator);
        (list.statements, Estimator.count(&text))
    }

    #[test]
    fn no_statement_is_dropped_that_fits_in_the_budget() {
        for weight in [4, LABELLED] {
            let all = statements(15, weight);
            for budget in 20..300 {
                let (kept, size) = kept(&all, budget, 5_000);
                assert!(size <= budget, "{size} of {budget}");
                for one in all.iter().filter(|one| !kept.contains(one)) {
                    let cost = Estimator.count(&line(one)) + 1 + heading_cost(one.section, &Estimator);
                    assert!(size + cost > budget, "{one:?} fits in {budget}: {size}");
                }
            }
        }
    }

    #[test]
    fn a_statement_that_was_kept_is_kept_in_every_later_compression() {
        for weight in [4, LABELLED] {
            for budget in 20..300 {
                let (first, _) = kept(&statements(15, weight), budget, 50);
                for count in [99, 100, 5_000] {
                    assert_eq!(kept(&first, budget, count).0, first, "{budget}");
                }
            }
        }
    }

    #[test]
    fn the_newest_labelled_statements_precede_older_ones_of_their_length() {
        for budget in 20..300 {
            // Every fifth one has an equal section and length.
            let all = statements(15, LABELLED);
            let (kept, _) = kept(&all, budget, 50);
            for at in 0..10 {
                let (older, newer) = (kept.contains(&all[at]), kept.contains(&all[at + 5]));
                assert!(newer || !older, "{:?} at {budget}", all[at]);
            }
        }
    }

    #[test]
    fn a_labelled_statement_that_a_newer_one_restates_is_dropped_before_others() {
        for (other, old, new) in [
            (
                "Goal: the tests of the parser pass.",
                "Goal: the invoices are exported as AX-100.",
                "Goal: accounting wants the exported invoices as BX-200.",
            ),
            (
                "Ziel: Die Tests des Parsers laufen durch.",
                "Ziel: Die Rechnungen werden als AX-100 exportiert.",
                "Ziel: Buchhaltung will die Rechnungen exportiert als BX-200.",
            ),
            (
                "目标：解析器的测试全部通过。",
                "目标：财务部的发票导出为 AX-100。",
                "目标：给财务部的发票导出用 BX-200。",
            ),
        ] {
            let of = |text: &str| Statement {
                section: Section::Goals,
                text: text.to_owned(),
                ids: Vec::new(),
                from: Role::User,
                is_binding: false,
                weight: LABELLED,
            };
            let all = [other, old, new].map(of);
            let (_, tokens) = kept(&all, 300, 50);
            let (kept, _) = kept(&all, tokens - 4, 50);
            assert_eq!(kept, [all[0].clone(), all[2].clone()]);
        }
    }
}
