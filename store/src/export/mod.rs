//! Export of a run to a text file, and import.
//!
//! The file has one JSON value on each line: the run, the contents it names, its steps, its timers, and last the number of
//! lines and the SHA-256 of the lines before. Steps shared with a base are included, so an imported run has no base.
//!
//! Not here: copies of a whole store, which are in `sqlite::file::backup`.

mod strict;

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::{self, BufRead, Read, Write};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::strict::Refusal;
use crate::commit::{Commit, NewRun, TimerChange};
use crate::content::{Content, ContentHash};
use crate::error::StoreError;
use crate::run::{Record, Run, RunStatus, WaitingFor};
use crate::store::Store;

const VERSION: u32 = 1;

/// Bytes of the longest line that is read, so that a file without an end of a line is refused before it fills memory.
const LONGEST_LINE: u64 = 256 << 20;

/// Number of records read at a time.
const PAGE: usize = 1_000;

/// Number of contents read at a time: they may be large.
const TEXTS: usize = 16;

/// Reason why an export or import failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// Error of the store. Nothing was imported.
    Store(StoreError),
    /// The file could not be read or written.
    File(io::Error),
    /// The file is malformed or was changed. Nothing was imported.
    Malformed {
        /// Line number, from 1.
        line: usize,
        /// Column, from 1; `None` if the whole line is meant.
        column: Option<usize>,
        /// Description of the error.
        why: String,
    },
}

impl Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => Display::fmt(error, f),
            Self::File(error) => Display::fmt(error, f),
            Self::Malformed { line, column, why } => {
                write!(f, "line {line}")?;
                column.iter().try_for_each(|column| write!(f, ", column {column}"))?;
                write!(f, ": {why}")
            }
        }
    }
}

impl std::error::Error for ExportError {}

impl From<StoreError> for ExportError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Head {
    pirn_run: u32,
    run_id: String,
    workflow_id: String,
    definition: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contents: Vec<String>,
    semantics: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// Run and step of the fork. Only for readers of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forked_from: Option<ForkedFrom>,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting_for: Option<String>,
    started_at: u64,
    steps: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ForkedFrom {
    run_id: String,
    step: u64,
}

/// Any line but the first: a step, a content, a timer or the end, depending on its members.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
    /// Body of a record that is JSON on one line, written verbatim as the last member: serde would change its bytes.
    #[serde(skip)]
    body: Option<String>,
    /// Body of any other record, as a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Hash of the preceding content.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Writes a run to `out`.
pub async fn export(store: &dyn Store, id: &str, out: &mut (dyn Write + Send)) -> Result<(), ExportError> {
    let run = store
        .run(id)
        .await?
        .ok_or_else(|| StoreError::NoSuchRun { run: id.to_owned() })?;
    let mut lines = Lines::new(out);
    lines.write_text(serde_json::to_string(&head(&run)).map_err(io::Error::from)?)?;
    // Several contents may continue one chain, and each part is exported once.
    let mut written = BTreeSet::new();
    for last in std::iter::once(run.definition).chain(run.contents.iter().copied()) {
        let chain = chain(store, last, &written).await?;
        for some in chain.chunks(TEXTS) {
            let texts = store.contents(some.iter().map(|(hash, _)| *hash).collect()).await?;
            for ((hash, follows), text) in some.iter().zip(texts) {
                written.insert(*hash);
                lines.write(&Line {
                    content: Some(hash.to_string()),
                    text: Some(text.to_string()),
                    follows: follows.as_ref().map(ToString::to_string),
                    ..Line::default()
                })?;
            }
        }
    }
    let mut step = 0;
    while step < run.steps {
        let page = store.journal(id, step, PAGE.min((run.steps - step) as usize)).await?;
        // Without this check, a store that returns no records would make the loop endless.
        if page.is_empty() {
            break;
        }
        for record in page {
            step += 1;
            lines.write(&step_line(step, record))?;
        }
    }
    for timer in store.timers(u64::MAX, usize::MAX).await? {
        // A store lists timers by time only.
        if timer.run == id {
            lines.write(&Line {
                due: Some(timer.due),
                timer: Some(timer.effect),
                ..Line::default()
            })?;
        }
    }
    lines.end()
}

/// Returns the contents of a chain, each with its predecessor, oldest first. Contents in `written` are left out: the first
/// content has no predecessor, or one of those.
async fn chain(
    store: &dyn Store,
    last: ContentHash,
    written: &BTreeSet<ContentHash>,
) -> Result<Vec<(ContentHash, Option<ContentHash>)>, StoreError> {
    let (mut chain, mut next) = (Vec::new(), Some(last));
    while let Some(from) = next.take().filter(|hash| !written.contains(hash)) {
        let page = store.chain(from, PAGE + 1).await?;
        // The page is one longer than needed: its last content is the predecessor of the last one taken.
        next = page.get(PAGE).copied();
        for (at, hash) in page.iter().take(PAGE).enumerate() {
            if written.contains(hash) {
                next = None;
                break;
            }
            chain.push((*hash, page.get(at + 1).copied()));
        }
    }
    chain.reverse();
    Ok(chain)
}

/// Imports an exported run as one commit, under `id` or its original id. Returns its id.
pub async fn import(
    store: &dyn Store,
    file: &mut (dyn BufRead + Send),
    id: Option<&str>,
) -> Result<String, ExportError> {
    // The whole file is verified before the first write, so that a damaged file imports nothing.
    let commit = read(file, id)?;
    let id = commit.run.clone();
    store.commit(commit).await?;
    Ok(id)
}

fn head(run: &Run) -> Head {
    Head {
        pirn_run: VERSION,
        run_id: run.id.clone(),
        workflow_id: run.workflow.clone(),
        definition: run.definition.to_string(),
        contents: run.contents.iter().map(ToString::to_string).collect(),
        semantics: run.semantics,
        session: run.session.clone(),
        forked_from: run.base.as_ref().map(|base| ForkedFrom {
            run_id: base.run.clone(),
            step: base.step,
        }),
        status: run.status.as_str().to_owned(),
        waiting_for: run.status.waiting_for().map(|what| what.as_str().to_owned()),
        started_at: run.started_at,
        steps: run.steps,
    }
}

fn step_line(step: u64, record: Record) -> Line {
    // Verbatim bodies preserve the bytes that the engine wrote, and each line must be valid JSON.
    let is_line = !record.body.contains(['\n', '\r'])
        && record.body.trim() == record.body
        && serde_json::from_str::<IgnoredAny>(&record.body).is_ok();
    let (body, body_text) = if is_line {
        (Some(record.body), None)
    } else {
        (None, Some(record.body))
    };
    Line {
        step: Some(step),
        at: Some(record.at),
        effect: record.effect,
        body,
        body_text,
        ..Line::default()
    }
}

/// Separator between the other members of a line and the body. No JSON string contains it, because quotes are escaped.
const BODY: &str = ",\"body\":";

fn line_text(line: &Line) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(line)?;
    if let Some(body) = &line.body {
        text.pop();
        text.push_str(BODY);
        text.push_str(body);
        text.push('}');
    }
    Ok(text)
}

fn read_line(text: &str) -> Result<Line, Refusal> {
    // The first occurrence is the right one: the members before the body cannot contain it.
    let Some((members, body)) = text.split_once(BODY) else {
        return parse(text);
    };
    let mut line: Line = parse(&format!("{members}}}"))?;
    let Some(body) = body.trim_end().strip_suffix('}') else {
        let why = "not a line of an exported run: it does not end with `}`".to_owned();
        let byte = Some(text.trim_end().len());
        return Err(Refusal { byte, why });
    };
    // Only checked: parsing into a value and writing it again could change the bytes.
    strict::check(body).map_err(|refusal| refusal.after(members.len() + BODY.len()))?;
    line.body = Some(body.to_owned());
    Ok(line)
}

struct Lines<'a> {
    out: &'a mut (dyn Write + Send),
    sum: Sha256,
    count: usize,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self {
            out,
            sum: Sha256::new(),
            count: 0,
        }
    }

    fn write(&mut self, line: &Line) -> Result<(), ExportError> {
        self.write_text(line_text(line).map_err(io::Error::from)?)
    }

    fn write_text(&mut self, mut text: String) -> Result<(), ExportError> {
        text.push('\n');
        self.sum.update(&text);
        self.count += 1;
        Ok(self.out.write_all(text.as_bytes())?)
    }

    fn end(mut self) -> Result<(), ExportError> {
        self.write(&Line {
            lines: Some(self.count),
            // A clone, because `write` adds this last line to the sum too.
            sha256: Some(hex(self.sum.clone())),
            ..Line::default()
        })?;
        Ok(self.out.flush()?)
    }
}

fn hex(sum: Sha256) -> String {
    ContentHash::from_bytes(sum.finalize().into()).to_string()
}

/// Appends the next line. False at the end.
fn has_line(file: &mut dyn BufRead, text: &mut String) -> io::Result<bool> {
    // Reading one byte more than allowed distinguishes a line that is too long from one of exactly this length.
    let read = file.take(LONGEST_LINE + 1).read_line(text)?;
    if read as u64 > LONGEST_LINE {
        let why = format!("a line has more than {} MiB", LONGEST_LINE >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(read > 0)
}

fn read(file: &mut dyn BufRead, id: Option<&str>) -> Result<Commit, ExportError> {
    let mut sum = Sha256::new();
    let mut number = 0;
    let mut text = String::new();
    let (mut commit, mut head): (Option<Commit>, Option<Head>) = (None, None);
    loop {
        text.clear();
        number += 1;
        // The last line of a complete file returns from the loop below.
        match has_line(file, &mut text) {
            Ok(true) => {}
            Ok(false) => return Err(whole_line(number, "the file ends in the middle")),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(whole_line(number, &error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        let refused = |refusal: Refusal| ExportError::Malformed {
            line: number,
            // In characters.
            column: refusal.byte.map(|byte| {
                let before = text.char_indices().take_while(|(at, _)| at + 1 < byte);
                before.count() + 1
            }),
            why: refusal.why,
        };
        let malformed = |why: String| refused(why.into());
        // The first line is the head, and only it can start the commit.
        let Some(commit) = &mut commit else {
            let first: Head = parse(&text).map_err(refused)?;
            commit = Some(start(&first, id).map_err(malformed)?);
            head = Some(first);
            sum.update(&text);
            continue;
        };
        let line = read_line(&text).map_err(refused)?;
        if let (Some(lines), Some(sha256)) = (line.lines, line.sha256) {
            let steps = head.map_or(0, |head| head.steps);
            // The number of steps is compared too: a checksum proves that the file is as it was exported, not that the export was
            // complete.
            if lines != number - 1 || sha256 != hex(sum) || commit.records.len() as u64 != steps {
                return Err(whole_line(
                    number,
                    "the file was changed after the export: its checksum does not match",
                ));
            }
            // Moved out of the variable, which is not used again.
            let commit = std::mem::replace(commit, Commit::after("", 0));
            text.clear();
            // Empty lines are tolerated: editors and shells add them at the end of a file.
            while has_line(file, &mut text)? {
                number += 1;
                if !text.trim().is_empty() {
                    return Err(whole_line(
                        number,
                        "the file continues after the end of the exported run: import each exported file separately",
                    ));
                }
                text.clear();
            }
            return Ok(commit);
        }
        if let Some(body) = &line.body_text
            && serde_json::from_str::<IgnoredAny>(body).is_ok()
            && let Err(refusal) = strict::check(body)
        {
            return Err(malformed(format!("/bodyText: {}", refusal.why)));
        }
        let body = line.body.or(line.body_text);
        match (
            line.step.zip(line.at).zip(body),
            line.content.zip(line.text),
            line.due.zip(line.timer),
        ) {
            (Some(((step, at), body)), None, None) => {
                if step != commit.records.len() as u64 + 1 {
                    return Err(malformed(format!(
                        "step {step} does not follow step {}",
                        commit.records.len()
                    )));
                }
                let effect = line.effect;
                commit.records.push(Record { at, effect, body });
            }
            (None, Some((hash, text)), None) => {
                let follows = line.follows.as_ref().map(|hash| ContentHash::parse(hash));
                if follows == Some(None) {
                    return Err(malformed("`follows` is not a hash".to_owned()));
                }
                let content = Content::new(text).following(follows.flatten());
                // The store names contents by their own hash, so a changed text would be missing under the name in the run.
                if content.hash().to_string() != hash {
                    return Err(malformed(format!("the text is not the one with the hash {hash}")));
                }
                commit.contents.push(content);
            }
            (None, None, Some((due, effect))) => commit.timers.push(TimerChange::Set { due, effect }),
            _ => return Err(malformed("neither a step nor a text nor a timer".to_owned())),
        }
        // After the match, because the last line is not part of the sum.
        sum.update(&text);
    }
}

fn whole_line(line: usize, why: &str) -> ExportError {
    ExportError::Malformed {
        line,
        column: None,
        why: why.to_owned(),
    }
}

fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Refusal> {
    // serde would also accept an array of the fields.
    if !text.trim_start().starts_with('{') {
        return Err("not a line of an exported run: expected an object".to_owned().into());
    }
    strict::check(text)?;
    serde_json::from_str(text).map_err(|error| {
        let refusal = Refusal::of(&error, text);
        let why = format!("not a line of an exported run: {}", refusal.why);
        Refusal { why, ..refusal }
    })
}

fn start(head: &Head, id: Option<&str>) -> Result<Commit, String> {
    if head.pirn_run != VERSION {
        return Err(format!(
            "exported in format {}; this version supports {VERSION}",
            head.pirn_run
        ));
    }
    let hash = |text: &String| ContentHash::parse(text).ok_or_else(|| format!("not a hash: {text}"));
    let mut new = NewRun::new(head.workflow_id.as_str(), hash(&head.definition)?, head.started_at);
    new.contents = head.contents.iter().map(hash).collect::<Result<_, _>>()?;
    new.semantics = head.semantics;
    // Only the name: the session itself is not part of the file. Under another id the run is a copy, and only one run may write the
    // session's next version.
    if id.is_none_or(|id| id == head.run_id) {
        new.session.clone_from(&head.session);
    }
    let waits_for = |status: &RunStatus| status.waiting_for().map(WaitingFor::as_str) == head.waiting_for.as_deref();
    let status = RunStatus::ALL
        .into_iter()
        .find(|status| status.as_str() == head.status && waits_for(status));
    let status = status.ok_or_else(|| format!("no status: {}", head.status))?;
    Ok(Commit::start(id.unwrap_or(&head.run_id), new).status(status))
}
