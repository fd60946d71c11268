//! Helpers that templates can call, and the bounded output of a template.

use std::sync::LazyLock;
use std::time::Instant;

use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, PathAndJson, RenderContext, RenderError,
    RenderErrorReason, ScopedJson, Template as BarTemplate,
};
use pirn_definition::script::{MAX_TEXT, text_of};
use serde_json::Value;

use crate::deadline::now;

/// Helpers of templates: those of handlebars except `log` (which writes to the host's log), and `json`.
pub(super) const HELPERS: &[&str] = &[
    "if", "unless", "each", "with", "lookup", "raw", "eq", "ne", "gt", "gte", "lt", "lte", "and", "or", "not", "len",
    "json", SHOW, LENGTH, STEP,
];

/// Returns the names of the helpers: `if`, `each`, `json`, ...
pub fn template_helpers() -> impl Iterator<Item = &'static str> {
    HELPERS
        .iter()
        .copied()
        .filter(|name| ![SHOW, LENGTH, STEP].contains(name))
}

/// Maximum number of steps to render a template: pieces, values, loop iterations.
pub(super) const MAX_STEPS: usize = 1_000_000;

/// Helper that counts a loop iteration, so that loops without output are bounded too.
const STEP: &str = "pirn-step";

/// `{{pirn-step}}`, parsed as a helper call.
pub(super) static STEP_TAG: LazyLock<BarTemplate> =
    LazyLock::new(|| BarTemplate::compile(&format!("{{{{{STEP} 0}}}}")).unwrap_or_default());

/// Helper that formats a value.
pub(super) const SHOW: &str = "pirn-show";

/// Helper for the length of a list or string; for an object it returns the member of that name.
pub(super) const LENGTH: &str = "pirn-length";

/// Helper that returns the value of a path, or an error that names the path if there is none.
pub(super) const PRESENT: &str = "pirn-present";

/// Built-in helpers of handlebars that report a missing value without its path.
pub(super) const NEED_VALUES: &[&str] = &["eq", "ne", "gt", "gte", "lt", "lte", "not"];

pub(super) static REGISTRY: LazyLock<Handlebars<'static>> = LazyLock::new(|| {
    let mut registry = Handlebars::new();
    registry.set_strict_mode(true);
    registry.register_escape_fn(handlebars::no_escape);
    registry.register_helper(SHOW, Box::new(Show));
    registry.register_helper(LENGTH, Box::new(ValueHelper(|helper| Ok(length(helper)))));
    registry.register_helper(PRESENT, Box::new(ValueHelper(present)));
    registry.register_helper("json", Box::new(ShowJson));
    registry.register_helper("len", Box::new(ValueHelper(len)));
    registry.register_helper("lookup", Box::new(ValueHelper(lookup)));
    registry.register_helper(STEP, Box::new(Step));
    registry
});

struct Show;

impl HelperDef for Show {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
        output: &mut dyn Output,
    ) -> HelperResult {
        let Some(value) = helper.param(0) else { return Ok(()) };
        if !value.is_value_missing() {
            return Ok(output.write(&text_of(value.value()))?);
        }
        Err(missing(helper))
    }
}

/// Returns the error for a missing value. The second argument is its path.
fn missing(helper: &Helper<'_>) -> RenderError {
    let path = helper.param(1).and_then(|path| path.value().as_str());
    RenderError::strict_error(path.map(ToOwned::to_owned).as_ref())
}

/// Returns an argument of a helper that has a value.
fn given<'h, 'rc>(
    helper: &'h Helper<'rc>,
    name: &'static str,
    place: usize,
) -> Result<&'h PathAndJson<'rc>, RenderError> {
    let value = helper
        .param(place)
        .ok_or(RenderErrorReason::ParamNotFoundForIndex(name, place))?;
    if value.is_value_missing() {
        return Err(RenderError::strict_error(value.relative_path()));
    }
    Ok(value)
}

/// Helper that computes a value from its arguments; `None` is a missing value.
struct ValueHelper(fn(&Helper<'_>) -> Result<Option<Value>, RenderError>);

impl HelperDef for ValueHelper {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let value = (self.0)(helper)?;
        Ok(value.map_or(ScopedJson::Missing, ScopedJson::Derived))
    }
}

fn present(helper: &Helper<'_>) -> Result<Option<Value>, RenderError> {
    let value = helper.param(0).filter(|value| !value.is_value_missing());
    value
        .map(|value| Some(value.value().clone()))
        .ok_or_else(|| missing(helper))
}

fn len(helper: &Helper<'_>) -> Result<Option<Value>, RenderError> {
    let length = match given(helper, "len", 0)?.value() {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => length_of_text(text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
            let message = format!("`len` needs a list, an object or a string, and found `{other}`");
            return Err(RenderErrorReason::Other(message).into());
        }
    };
    Ok(Some(length.into()))
}

fn lookup(helper: &Helper<'_>) -> Result<Option<Value>, RenderError> {
    let (whole, entry) = (given(helper, "lookup", 0)?, given(helper, "lookup", 1)?);
    let found = match whole.value() {
        Value::Array(items) => {
            let index = entry.value().as_u64();
            index.and_then(|index| items.get(usize::try_from(index).ok()?))
        }
        Value::Object(fields) => entry.value().as_str().and_then(|name| fields.get(name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    let Some(found) = found else {
        let entry = text_of(entry.value());
        let path = whole
            .relative_path()
            .map_or_else(|| entry.to_string(), |whole| format!("{whole}.{entry}"));
        return Err(RenderError::strict_error(Some(&path)));
    };
    Ok(Some(found.clone()))
}

fn length(helper: &Helper<'_>) -> Option<Value> {
    match helper.param(0)?.value() {
        Value::Array(items) => Some(items.len().into()),
        Value::String(text) => Some(length_of_text(text).into()),
        Value::Object(fields) => fields.get("length").cloned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns the length that JavaScript reports for a string.
fn length_of_text(text: &str) -> usize {
    text.encode_utf16().count()
}

struct Step;

impl HelperDef for Step {
    fn call<'reg: 'rc, 'rc>(
        &self,
        _: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
        output: &mut dyn Output,
    ) -> HelperResult {
        Ok(output.write("")?)
    }
}

/// Output of a template, within its limits.
pub(super) struct BoundedOutput {
    pub(super) text: String,
    steps: usize,
    until: Option<Instant>,
    /// The exceeded limit.
    pub(super) over: Option<String>,
}

impl BoundedOutput {
    pub(super) fn new(until: Option<Instant>) -> Self {
        Self {
            text: String::new(),
            steps: 0,
            until,
            over: None,
        }
    }

    fn limit(&self, piece: &str) -> Option<String> {
        if self.steps > MAX_STEPS {
            return Some(format!("the template exceeded {MAX_STEPS} steps"));
        }
        if self.text.len() + piece.len() > MAX_TEXT {
            return Some(too_long());
        }
        let is_late = self.until.is_some_and(|until| now() >= until);
        is_late.then(|| "the template exceeded its time limit".to_owned())
    }
}

impl Output for BoundedOutput {
    fn write(&mut self, piece: &str) -> std::io::Result<()> {
        self.steps += 1;
        self.over = self.limit(piece);
        if self.over.is_some() {
            return Err(std::io::Error::other("too much"));
        }
        self.text.push_str(piece);
        Ok(())
    }
}

fn too_long() -> String {
    format!("the template's output exceeds {MAX_TEXT} bytes")
}

/// The JSON of a value, up to the remaining space.
#[derive(Default)]
struct BoundedJson(Vec<u8>);

impl std::io::Write for BoundedJson {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            return Err(std::io::Error::other(too_long()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct ShowJson;

impl HelperDef for ShowJson {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
        output: &mut dyn Output,
    ) -> HelperResult {
        let value = given(helper, "json", 0)?;
        // Inside another helper, handlebars collects output in an unbounded string.
        let mut json = BoundedJson::default();
        serde_json::to_writer(&mut json, value.value()).map_err(std::io::Error::from)?;
        Ok(output.write(&String::from_utf8_lossy(&json.0))?)
    }
}
