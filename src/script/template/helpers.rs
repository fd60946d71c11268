//! Helpers that a template can call, and the text that it writes to.

use std::sync::LazyLock;
use std::time::Instant;

use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, PathAndJson, RenderContext, RenderError,
    RenderErrorReason, ScopedJson, Template as BarTemplate,
};
use pirn_core::script::{MAX_TEXT, text_of};
use serde_json::Value;

use crate::script::deadline::now;

/// Helpers of a template: handlebars' own, without `log` (it writes to the host's log), and `json`.
pub(super) const HELPERS: &[&str] = &[
    "if", "unless", "each", "with", "lookup", "raw", "eq", "ne", "gt", "gte", "lt", "lte", "and", "or", "not", "len",
    "json", SHOW, LENGTH, STEP,
];

/// The names that a template may call: `if`, `each`, `json`, ...
pub fn template_helpers() -> impl Iterator<Item = &'static str> {
    HELPERS
        .iter()
        .copied()
        .filter(|name| ![SHOW, LENGTH, STEP].contains(name))
}

/// The most steps that may put a text together: pieces, values, turns of loops.
pub(super) const MAX_STEPS: usize = 1_000_000;

/// Counts a turn of a loop: one that writes nothing must end too.
const STEP: &str = "pirn-step";

/// `{{pirn-step}}`, as a helper is called.
pub(super) static STEP_TAG: LazyLock<BarTemplate> =
    LazyLock::new(|| BarTemplate::compile(&format!("{{{{{STEP} 0}}}}")).unwrap_or_default());

/// Shows a value.
pub(super) const SHOW: &str = "pirn-show";

/// The length of a list or text; of an object its member of that name.
pub(super) const LENGTH: &str = "pirn-length";

pub(super) static REGISTRY: LazyLock<Handlebars<'static>> = LazyLock::new(|| {
    let mut registry = Handlebars::new();
    registry.set_strict_mode(true);
    registry.register_escape_fn(handlebars::no_escape);
    registry.register_helper(SHOW, Box::new(Show));
    registry.register_helper(LENGTH, Box::new(Length));
    registry.register_helper("json", Box::new(ShowJson));
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
        let path = helper
            .param(1)
            .and_then(|path| path.value().as_str())
            .map(ToOwned::to_owned);
        Err(RenderError::strict_error(path.as_ref()))
    }
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

/// A text that is being put together, within its limits.
pub(super) struct Bounded {
    pub(super) text: String,
    steps: usize,
    until: Option<Instant>,
    /// The limit that it hit.
    pub(super) over: Option<String>,
}

impl Bounded {
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
            return Some(format!("the template takes more than {MAX_STEPS} steps"));
        }
        if self.text.len() + piece.len() > MAX_TEXT {
            return Some(too_long());
        }
        let is_late = self.until.is_some_and(|until| now() >= until);
        is_late.then(|| "the template takes longer than it may".to_owned())
    }
}

impl Output for Bounded {
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
    format!("the template makes more than {MAX_TEXT} bytes")
}

/// The JSON of a value, as far as there is room for it.
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

struct Length;

impl HelperDef for Length {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let length = match helper.param(0).map(PathAndJson::value) {
            Some(Value::Array(items)) => Some(Value::from(items.len())),
            Some(Value::String(text)) => Some(Value::from(text.encode_utf16().count())),
            Some(Value::Object(fields)) => fields.get("length").cloned(),
            None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => None,
        };
        Ok(length.map_or(ScopedJson::Missing, ScopedJson::Derived))
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
        let value = helper
            .param(0)
            .ok_or(RenderErrorReason::ParamNotFoundForIndex("json", 0))?;
        if value.is_value_missing() {
            return Err(RenderError::strict_error(value.relative_path()));
        }
        // Inside another helper it is written to a text of handlebars' own, which has no bound.
        let mut json = BoundedJson::default();
        serde_json::to_writer(&mut json, value.value()).map_err(std::io::Error::from)?;
        Ok(output.write(&String::from_utf8_lossy(&json.0))?)
    }
}
