//! `read_artifact`: returns a part of a large result, by characters or by matching lines.

use serde::Deserialize;
use serde_json::Value;

use super::super::Tokenizer;
use super::excerpt;
use super::stored_results::LargeResults;

/// Bytes of a line shown before the match, and from it on; fewer if the limit is low.
const BEFORE: u64 = 120;
const AFTER: u64 = 360;

/// Maximum number of ids listed in a reply about an unknown id.
// The reply must stay short: the model needs an id, not the list.
const NAMED: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    id: String,
    range: Option<Range>,
    grep: Option<String>,
    from: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    start: usize,
    end: Option<usize>,
}

/// Returns the reply to `read_artifact`, of at most `limit` tokens.
///
/// # Errors
/// Returns a sentence for the model if there is no such artifact or the arguments are invalid.
pub fn read_artifact(
    arguments: &Value,
    results: &LargeResults,
    limit: u64,
    tokenizer: &dyn Tokenizer,
) -> Result<String, String> {
    let Arguments { id, range, grep, from } = read_arguments(arguments)?;
    let text = results.get(&id).ok_or_else(|| no_such(&id, results))?;
    match (range, grep) {
        (Some(_), Some(_)) => Err("Give `range` or `grep`, not both.".to_owned()),
        // A blank pattern would match every line.
        (None, Some(grep)) if grep.trim().is_empty() => Err("`grep` is blank: give a string to search for.".to_owned()),
        (None, Some(grep)) => lines_with(text, &id, &grep, from.unwrap_or(0), (limit, tokenizer)),
        (range, None) => {
            let range = range.unwrap_or(Range { start: 0, end: None });
            characters(text, &id, &range, (limit, tokenizer))
        }
    }
}

/// Parses the arguments of a built-in tool, or returns the reason that they are invalid.
pub(super) fn read_arguments<'de, T: Deserialize<'de>>(arguments: &'de Value) -> Result<T, String> {
    const LONGEST: usize = 200;
    T::deserialize(arguments).map_err(|error| {
        // The error repeats values of the arguments, which the model may have made huge.
        let why: String = error.to_string().chars().take(LONGEST).collect();
        format!("Invalid arguments: {why}.")
    })
}

fn no_such(id: &str, results: &LargeResults) -> String {
    // The model may have sent any text as the id.
    let id: String = id.chars().take(32).collect();
    let known: Vec<&str> = results.ids().take(NAMED).map(|id| &**id).collect();
    let known = match known.as_slice() {
        [] => "This run has none.".to_owned(),
        known => format!("The newest artifacts of this run: {}.", known.join(", ")),
    };
    format!("Artifact `{id}` not found: it was replaced by newer ones or belongs to another run. {known}")
}

fn characters(
    text: &str,
    id: &str,
    range: &Range,
    (limit, tokenizer): (u64, &dyn Tokenizer),
) -> Result<String, String> {
    // Models count characters, not bytes.
    let total = text.chars().count();
    // An end behind the text is no error: the model may not know the length.
    let end = range.end.unwrap_or(total).min(total);
    if range.start > end {
        return Err(format!(
            "Artifact {id} has {total} characters: the range from {} to {end} is empty.",
            range.start
        ));
    }
    // Linear, but called twice for each page.
    let byte_of = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let part = &text[byte_of(range.start)..byte_of(end)];
    let page = |part: &str, whole: usize| {
        let last = range.start + part.chars().count();
        let next = match (part.len() < whole, range.end) {
            (false, _) => String::new(),
            (true, None) => format!("; continue with range {{\"start\":{last}}}"),
            (true, Some(end)) => format!("; continue with range {{\"start\":{last},\"end\":{end}}}"),
        };
        let start = range.start;
        format!("[artifact {id}: characters {start} to {last} of {total}{next}]\n{part}")
    };
    // The header counts too, and its length is known only with the text cut off.
    let said = tokenizer.count(&page("", part.len()));
    let mut length = excerpt::beginning(part, limit.saturating_sub(said), tokenizer);
    loop {
        let page = page(&part[..length], part.len());
        if tokenizer.count(&page) <= limit && (length > 0 || part.is_empty()) {
            return Ok(page);
        }
        if length == 0 {
            return Err(NO_ROOM.to_owned());
        }
        // Tokens of header and text do not add up exactly. Each retry shortens the text by an eighth.
        length = part.floor_char_boundary(length - length.div_ceil(8));
    }
}

const NO_ROOM: &str = "No match or character fits into a page: the workflow's `artifactTokens` is too small.";

fn lines_with(
    text: &str,
    id: &str,
    grep: &str,
    from: usize,
    (limit, tokenizer): (u64, &dyn Tokenizer),
) -> Result<String, String> {
    // Once, and not for each line.
    let needle = excerpt::folded(grep);
    let (mut total, mut characters, mut shown) = (0, 0, Vec::new());
    let mut cost = 0_u64;
    let (before, after) = (BEFORE.min(limit / 4) as usize, AFTER.min(limit / 2) as usize);
    for (line, number) in text.split('\n').zip(1_u64..) {
        if let Some(at) = excerpt::folded(line).find(&needle) {
            // Later matches are only counted: they cannot be on this page.
            if total >= from && cost <= limit {
                let place = characters + line[..at].chars().count();
                let line = excerpt::around(line, at, before, after);
                let line = format!("line {number}, character {place}: {line}");
                cost = cost.saturating_add(tokenizer.count(&line));
                shown.push(line);
            }
            total += 1;
        }
        // One for the line break, which `split` removes.
        characters += line.chars().count() + 1;
    }
    let head = |count: usize| {
        // `from` comes from the model and may be behind the last match.
        let last = from.min(total) + count;
        let next = if last < total {
            format!("; continue with from {last}")
        } else {
            String::new()
        };
        format!("[artifact {id}: {total} lines match; showing {count} from {from}{next}]")
    };
    paged(&shown, from < total, head, (limit, tokenizer))
}

/// Returns a page with as many matches as fit in `limit` tokens.
pub(super) fn paged(
    matches: &[String],
    is_any: bool,
    head: impl Fn(usize) -> String,
    (limit, tokenizer): (u64, &dyn Tokenizer),
) -> Result<String, String> {
    // From the most matches down. At least one is shown, because an empty page would be requested again.
    for count in (usize::from(is_any)..=matches.len()).rev() {
        let page = [head(count)]
            .iter()
            .chain(&matches[..count])
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n");
        if tokenizer.count(&page) <= limit {
            return Ok(page);
        }
    }
    Err(NO_ROOM.to_owned())
}
