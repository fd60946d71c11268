//! The last line: how the run ended, its duration, threads, tokens, cost, budget and compressions.

use pirn::{BudgetFigure, BudgetReport, RunReport, ThreadStatus};
use pirn_conversation::conversation::{Cost, TokenUsage};
use pirn_conversation::model_call::CacheReport;
use pirn_core::thread::ThreadKind;

use super::line::{Line, Tone, seconds};
use super::meter::grouped;
use super::view::Compressions;

pub(super) fn line(report: &RunReport, compressions: Compressions, was_interrupted: bool) -> Line {
    let (word, tone) = match (was_interrupted, report.status) {
        (true, _) => ("interrupted".to_owned(), Tone::Bad),
        (false, ThreadStatus::Completed) => ("completed".to_owned(), Tone::Good),
        (false, status) => (status.as_str().to_lowercase(), Tone::Bad),
    };
    let mut parts = vec![threads(report)];
    parts.push(tokens(&report.tokens.spent));
    if let Some(cost) = report.tokens.spent.cost {
        parts.push(money(cost));
    }
    if let Some(budget) = report
        .budget
        .as_ref()
        .and_then(|budget| budgeted(budget, report.tokens.spent.cost))
    {
        parts.push(budget);
    }
    if compressions.count > 0 {
        let plural = if compressions.count == 1 { "" } else { "s" };
        let (count, saved) = (grouped(compressions.count), grouped(compressions.saved));
        parts.push(format!("{count} compression{plural} saved {saved} tokens"));
    }
    if let Some(collapses) = report.usage.cache.as_deref().and_then(collapsed) {
        parts.push(collapses);
    }
    Line {
        at: Some(report.elapsed_ms),
        depth: 0,
        tone,
        text: format!(
            "{} {word} in {}: {}",
            report.workflow_id,
            seconds(report.elapsed_ms),
            parts.join("; ")
        ),
    }
}

/// Formats `1,240 tokens (200 in, 800 cached, 240 out)`: the kinds that were used add up to the total.
fn tokens(spent: &TokenUsage) -> String {
    let kinds = [
        (spent.input, "in"),
        (spent.cached_read, "cached"),
        (spent.cached_write, "written to the cache"),
        (spent.output, "out"),
        (spent.reasoning, "reasoning"),
    ];
    let is_always_told = |word: &str| word == "in" || word == "out";
    let told = kinds
        .into_iter()
        .filter(|(count, word)| *count > 0 || is_always_told(word));
    let told: Vec<String> = told.map(|(count, word)| format!("{} {word}", grouped(count))).collect();
    match spent.total {
        0 => "no tokens".to_owned(),
        total if total == spent.sent().saturating_add(spent.received()) => {
            format!("{} tokens ({})", grouped(total), told.join(", "))
        }
        total => format!("{} tokens", grouped(total)),
    }
}

/// Formats `3 requests lost 40,000 cached tokens (0.12 USD): 1 compacted, 2 expired`.
fn collapsed(cache: &CacheReport) -> Option<String> {
    let lost = cache.collapses.iter().filter(|one| one.lost_tokens > 0);
    let (mut count, mut tokens, mut sum) = (0, 0_u64, TokenUsage::default());
    let mut reasons = Vec::new();
    for one in lost {
        count += one.count;
        tokens = tokens.saturating_add(one.lost_tokens);
        sum.add(TokenUsage {
            cost: one.cost,
            ..TokenUsage::default()
        });
        reasons.push((one.count, one.reason.as_str()));
    }
    let plural = if count == 1 { "" } else { "s" };
    let cost = sum.cost.map_or_else(String::new, |cost| format!(" ({})", money(cost)));
    (count > 0).then(|| {
        let (count, tokens, reasons) = (grouped(count), grouped(tokens), listed(reasons));
        format!("{count} request{plural} lost {tokens} cached tokens{cost}: {reasons}")
    })
}

/// Formats `0.0123 USD`.
fn money(cost: Cost) -> String {
    format!("{} {}", digits(cost.amount()), cost.currency)
}

/// Formats an amount with at least two decimals; below 1, with two significant digits.
fn digits(amount: f64) -> String {
    let digits = if amount > 0.0 && amount < 1.0 {
        (1 - amount.log10().floor() as i32).clamp(2, 12) as usize
    } else {
        2
    };
    format!("{amount:.digits$}")
}

/// Formats `budget 1,240 of 2,000 tokens, 0.012 of 0.05 USD, 3 of 10 model calls`: the figures that the budget limits. The currency
/// is that of the cost so far.
fn budgeted(budget: &BudgetReport, spent: Option<Cost>) -> Option<String> {
    let count = |figure: &Option<BudgetFigure>, words: &str| {
        let figure = figure.as_ref()?;
        let (used, limit) = (figure.used.as_u64()?, figure.limit.as_u64()?);
        Some(format!("{} of {} {words}", grouped(used), grouped(limit)))
    };
    let cost = budget.cost.as_ref().and_then(|figure| {
        let (used, limit) = (figure.used.as_f64()?, figure.limit.as_f64()?);
        let currency = spent.map_or_else(|| "of cost".to_owned(), |cost| cost.currency.to_string());
        Some(format!("{} of {} {currency}", digits(used), digits(limit)))
    });
    let told = [
        count(&budget.tokens, "tokens"),
        cost,
        count(&budget.model_calls, "model calls"),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    (!told.is_empty()).then(|| format!("budget {}", told.join(", ")))
}

/// Formats `8 threads: 1 main, 6 branches, 1 triggered; 7 completed, 1 cancelled`. The counts by kind and by status each add up.
fn threads(report: &RunReport) -> String {
    let of_kind = |kind| report.threads.iter().filter(|thread| thread.kind == kind).count() as u64;
    let of_status = |status| report.threads.iter().filter(|thread| thread.status == status).count() as u64;
    let total = report.threads.len() as u64;
    if total <= 1 {
        return format!("{total} thread");
    }
    let kinds = [
        (of_kind(ThreadKind::Main), "main", "main"),
        (of_kind(ThreadKind::Branch), "branch", "branches"),
        (of_kind(ThreadKind::Subgraph), "called", "called"),
        (of_kind(ThreadKind::Triggered), "triggered", "triggered"),
    ];
    let ends = [
        (of_status(ThreadStatus::Completed), "completed"),
        (of_status(ThreadStatus::Failed), "failed"),
        (of_status(ThreadStatus::Timeout), "timed out"),
        (of_status(ThreadStatus::Cancelled), "cancelled"),
        (of_status(ThreadStatus::Paused), "paused"),
        (
            of_status(ThreadStatus::Running) + of_status(ThreadStatus::Created),
            "running",
        ),
    ];
    let kinds = kinds
        .into_iter()
        .map(|(count, one, many)| (count, if count == 1 { one } else { many }));
    format!("{} threads ({}; {})", grouped(total), listed(kinds), listed(ends))
}

fn listed<'w>(counts: impl IntoIterator<Item = (u64, &'w str)>) -> String {
    let there = counts.into_iter().filter(|(count, _)| *count > 0);
    there
        .map(|(count, word)| format!("{} {word}", grouped(count)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use pirn_conversation::conversation::Currency;
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_are_listed_by_kind_and_add_up() {
        let spent = TokenUsage {
            cached_read: 800,
            ..TokenUsage::new(200, 1_240, 2_240)
        };
        assert_eq!(tokens(&spent), "2,240 tokens (200 in, 800 cached, 1,240 out)");
        assert_eq!(tokens(&TokenUsage::new(3, 0, 3)), "3 tokens (3 in, 0 out)");
        assert_eq!(tokens(&TokenUsage::new(3, 1, 9)), "9 tokens");
        assert_eq!(tokens(&TokenUsage::default()), "no tokens");
        let absurd = TokenUsage {
            input: u64::MAX,
            ..TokenUsage::new(0, u64::MAX, u64::MAX)
        };
        assert!(tokens(&absurd).starts_with("18,446,744,073,709,551,615 tokens"));
    }

    #[test]
    fn a_budget_line_lists_only_the_limited_figures() {
        let figure = |used, limit| Some(BudgetFigure { limit, used });
        let budget = BudgetReport {
            tokens: figure(json!(1_240), json!(2_000)),
            cost: figure(json!(0.0123), json!(0.5)),
            model_calls: figure(json!(3), json!(10)),
        };
        let spent = Cost {
            pico: 12_300_000_000,
            currency: Currency::default(),
        };
        let told = "budget 1,240 of 2,000 tokens, 0.012 of 0.50 USD, 3 of 10 model calls";
        assert_eq!(budgeted(&budget, Some(spent)).as_deref(), Some(told));
        let calls = BudgetReport {
            model_calls: budget.model_calls,
            ..BudgetReport::default()
        };
        assert_eq!(budgeted(&calls, None).as_deref(), Some("budget 3 of 10 model calls"));
        assert_eq!(budgeted(&BudgetReport::default(), None), None);
    }

    #[test]
    fn money_is_shown_with_its_significant_digits() {
        let said = |pico| {
            money(Cost {
                pico,
                currency: Currency::default(),
            })
        };
        for (pico, expected) in [
            (0, "0.00 USD"),
            (1_500_000_000_000, "1.50 USD"),
            (120_000_000_000, "0.12 USD"),
            (12_340_000_000, "0.012 USD"),
            (75_000_000, "0.000075 USD"),
            (1, "0.000000000001 USD"),
        ] {
            assert_eq!(said(pico), expected);
        }
    }
}
