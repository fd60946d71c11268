//! What a template can call, and the text that it writes to.

use std::sync::LazyLock;

use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, PathAndJson, RenderContext, RenderError,
    RenderErrorReason, ScopedJson, Template as BarTemplate,
};
use pirn_core::script::{MAX_TEXT, text_of};
use serde_json::Value;

/// What a template can call: handlebars' own, without `log` (it writes to the host's log), and `json`.
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

/// What a text may be put together from: pieces, values, turns of loops.
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
#[derive(Default)]
pub(super) struct Bounded {
    pub(super) text: String,
    steps: usize,
    pub(super) is_over: bool,
}

impl Output for Bounded {
    fn write(&mut self, piece: &str) -> std::io::Result<()> {
        self.steps += 1;
        if self.steps > MAX_STEPS || self.text.len() + piece.len() > MAX_TEXT {
            self.is_over = true;
            return Err(std::io::Error::other("too much"));
        }
        self.text.push_str(piece);
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
        Ok(output.write(&value.value().to_string())?)
    }
}
