//! `pirn context judge`: extracts facts from summarized messages, and reports which of them the summary retained.

use pirn::formats;
use pirn_conversation::conversation::compression::{
    FactKind, JudgedFact, JudgedStatement, Section, is_summary, judge, judge_statements,
};
use pirn_conversation::conversation::{Estimator, no_longer_shown};
use pirn_definition::message::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{BadInput, conversation, json_of, of_format, typed};
use crate::output::sanitize::sanitize_line;
use crate::output::terminal::{Output, table};

/// Maximum number of lost facts in the text output.
const SHOWN: usize = 40;

#[derive(clap::Args)]
pub(super) struct Args {
    /// {originals, summary}: messages and a string; or a conversation or result of a run that contains a summary; - for stdin
    pub(super) file: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    originals: Vec<Message>,
    summary: String,
}

/// Formats the facts of the originals, retained and lost.
pub(super) fn judged(args: &Args, text: &str) -> Result<String, BadInput> {
    let value = json_of(text)?;
    let (facts, statements) = if value.get("summary").is_some() {
        let given: Given = typed(&value)?;
        (
            judge(&given.originals, &given.summary),
            judge_statements(&given.originals, &given.summary),
        )
    } else {
        of_conversation(&value)?
    };
    Ok(match args.output {
        Output::Text => page(&facts),
        Output::Json => format!("{}\n", to_json(&facts, &statements)),
    })
}

/// Judges the visible summaries of a conversation against the messages that they hide. Positions of facts refer to the whole
/// history.
fn of_conversation(value: &Value) -> Result<(Vec<JudgedFact>, Vec<JudgedStatement>), BadInput> {
    let read = formats::read(value, None).map_err(|error| of_format(&error))?;
    let messages = read.messages.into_iter().map(std::sync::Arc::new).collect();
    let history = conversation(messages, read.mark_map, &Estimator)?;
    let summaries: Vec<&str> = (history.visible().iter())
        .filter(|counted| is_summary(&counted.message))
        .map(|counted| counted.message.content.as_str())
        .collect();
    if summaries.is_empty() {
        let message =
            "no visible message is a summary: give a conversation that `summarize` compressed, or {originals, summary}";
        return Err(BadInput::new("NO_SUMMARY", message, ""));
    }
    let summary = summaries.join("\n");
    let (places, originals): (Vec<usize>, Vec<&Message>) = no_longer_shown(&history).into_iter().unzip();
    let mut facts = judge(&originals, &summary);
    for fact in &mut facts {
        fact.messages.iter_mut().for_each(|place| *place = places[*place]);
    }
    Ok((facts, judge_statements(&originals, &summary)))
}

fn kept(facts: &[&JudgedFact]) -> usize {
    facts.iter().filter(|fact| fact.kept).count()
}

/// Returns the retained share; 1 if there are no facts.
fn share(kept: usize, total: usize) -> f64 {
    if total == 0 { 1.0 } else { kept as f64 / total as f64 }
}

/// Groups the facts by kind, followed by a group of all facts.
fn rows(facts: &[JudgedFact]) -> impl Iterator<Item = (&'static str, Vec<&JudgedFact>)> {
    let of_kind = |kind: FactKind| facts.iter().filter(|fact| fact.fact.kind == kind).collect();
    let kinds: Vec<_> = FactKind::ALL
        .into_iter()
        .map(|kind| (kind.as_str(), of_kind(kind)))
        .collect();
    kinds.into_iter().chain([("all", facts.iter().collect())])
}

fn to_json(facts: &[JudgedFact], statements: &[JudgedStatement]) -> Value {
    let mut kinds = serde_json::Map::new();
    for (name, facts) in rows(facts).filter(|(name, _)| *name != "all") {
        kinds.insert(name.to_owned(), json!({"total": facts.len(), "kept": kept(&facts)}));
    }
    let all: Vec<&JudgedFact> = facts.iter().collect();
    let lost: Vec<Value> = facts
        .iter()
        .filter(|fact| !fact.kept)
        .map(|fact| json!({"kind": fact.fact.kind, "text": fact.fact.text, "messages": fact.messages}))
        .collect();
    let (kept, total) = (kept(&all), facts.len());
    let mut sections = serde_json::Map::new();
    for section in Section::ALL {
        let of = statements.iter().filter(|one| one.statement.section == section);
        let (total, kept) = (of.clone().count(), of.filter(|one| one.kept).count());
        if total > 0 {
            sections.insert(section.as_str().to_owned(), json!({"total": total, "kept": kept}));
        }
    }
    json!({"total": total, "kept": kept, "share": share(kept, total), "kinds": kinds, "lost": lost, "statements": sections})
}

fn page(facts: &[JudgedFact]) -> String {
    let counts = rows(facts).map(|(name, facts)| {
        let (kept, total) = (kept(&facts), facts.len());
        let share = format!("{:.0} %", 100.0 * share(kept, total));
        vec![name.to_owned(), total.to_string(), kept.to_string(), share]
    });
    let mut page = table(&["kind", "facts", "kept", "share"], counts);
    let lost: Vec<&JudgedFact> = facts.iter().filter(|fact| !fact.kept).collect();
    if lost.is_empty() {
        return page;
    }
    page.push('\n');
    let shown = lost.iter().take(SHOWN).map(|fact| {
        let places: Vec<String> = fact.messages.iter().take(5).map(usize::to_string).collect();
        let more = if fact.messages.len() > 5 { ", ..." } else { "" };
        let text = sanitize_line(&fact.fact.text);
        vec![
            fact.fact.kind.as_str().to_owned(),
            text,
            format!("{}{more}", places.join(", ")),
        ]
    });
    page.push_str(&table(&["lost", "fact", "messages"], shown));
    match lost.len().saturating_sub(SHOWN) {
        0 => page,
        more => format!("{page}and {more} more\n"),
    }
}
