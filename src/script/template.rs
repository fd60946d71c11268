//! Templates: text with `{{path}}`, blocks and helpers of handlebars.
//!
//! A template that is text and paths is rendered straight from the scope. For one with blocks or helpers, only the
//! paths that it names are copied into the data it is rendered from.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use handlebars::template::{HelperTemplate, Parameter, Subexpression, TemplateElement};
use handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, Path as BarPath, PathAndJson, PathSeg, RenderContext,
    RenderError, RenderErrorReason, Renderable, ScopedJson, Template as BarTemplate,
};
use pirn_core::error::RunErrorCode;
use pirn_core::script::{PlainText, Scope, ScriptFault, bare_name, text_of};
use serde_json::{Map, Value, json};

use super::TextFault;

/// A compiled template.
#[derive(Debug)]
pub(super) enum Template {
    /// Text and paths.
    Plain(PlainText),
    /// Blocks and helpers too.
    Bars(Box<Bars>),
}

#[derive(Debug)]
pub(super) struct Bars {
    template: BarTemplate,
    /// The paths it names, split at their dots; none begins with another.
    paths: BTreeSet<Vec<String>>,
    /// Whether it uses the scope as a whole.
    uses_all: bool,
}

impl Template {
    pub(super) fn compile(source: &str) -> Result<Self, ScriptFault> {
        Self::parse(source).map_err(|fault| ScriptFault::template(fault.message))
    }

    /// Whether a text is a template.
    pub(super) fn check(source: &str) -> Result<(), TextFault> {
        Self::parse(source).map(drop)
    }

    fn parse(source: &str) -> Result<Self, TextFault> {
        if let Some(plain) = PlainText::read(source) {
            return Ok(Self::Plain(plain));
        }
        if depth(source) > MAX_DEPTH {
            return Err(unknown(&format!(
                "blocks and brackets are nested at most {MAX_DEPTH} deep"
            )));
        }
        let mut template = BarTemplate::compile(&with_dotted_brackets(source)).map_err(|error| {
            let (line, column) = error.pos().unzip();
            let number = |place: Option<usize>| place.and_then(|place| u32::try_from(place).ok());
            TextFault {
                message: error.reason().to_string(),
                line: number(line),
                column: number(column),
            }
        })?;
        let mut used = Used::default();
        used.template(&mut template)?;
        Ok(Self::Bars(Box::new(Bars {
            template,
            paths: without_tails(used.paths),
            uses_all: used.all,
        })))
    }

    /// The text.
    pub(super) fn render(&self, scope: &dyn Scope) -> Result<String, ScriptFault> {
        match self {
            Self::Plain(plain) => plain.render(scope),
            Self::Bars(bars) => bars.render(scope),
        }
    }

    /// The text, or the value where it is one `{{path}}`.
    pub(super) fn value(&self, scope: &dyn Scope) -> Result<Arc<Value>, ScriptFault> {
        match self {
            Self::Plain(plain) => plain.value(scope),
            Self::Bars(bars) => bars.render(scope).map(|text| Arc::new(Value::from(text))),
        }
    }
}

impl Bars {
    fn render(&self, scope: &dyn Scope) -> Result<String, ScriptFault> {
        let context = Context::from(self.data(scope));
        let mut output = Bounded::default();
        let rendered = self
            .template
            .render(&REGISTRY, &context, &mut RenderContext::new(None), &mut output);
        match (output.is_over, rendered) {
            (true, _) => Err(ScriptFault::limit(format!(
                "the template makes more than {MAX_TEXT} bytes, or takes more than {MAX_STEPS} steps"
            ))),
            (false, Err(error)) => Err(fault(&error)),
            (false, Ok(())) => Ok(output.text),
        }
    }

    /// What it names of the scope, in the shape the paths have.
    fn data(&self, scope: &dyn Scope) -> Value {
        let mut data = Map::new();
        if self.uses_all {
            data.insert("variables".into(), whole(scope.variables()));
            data.insert("nodes".into(), whole(scope.nodes()));
            data.insert("input".into(), scope.input().as_ref().clone());
            data.insert("output".into(), scope.output().as_ref().clone());
            data.insert(
                "event".into(),
                scope.event().map_or(Value::Null, |event| event.as_ref().clone()),
            );
        }
        for path in &self.paths {
            take_along(&mut data, scope, path);
        }
        Value::Object(data)
    }
}

fn whole(values: Vec<(Arc<str>, Arc<Value>)>) -> Value {
    values
        .into_iter()
        .map(|(name, value)| (name.to_string(), value.as_ref().clone()))
        .collect()
}

fn take_along(data: &mut Map<String, Value>, scope: &dyn Scope, path: &[String]) {
    let Some((root, members)) = path.split_first() else {
        return;
    };
    let (value, into, rest) = match (root.as_str(), members.split_first()) {
        ("variables", None) => {
            data.insert(root.clone(), whole(scope.variables()));
            return;
        }
        ("nodes", None) => {
            data.insert(root.clone(), whole(scope.nodes()));
            return;
        }
        ("variables" | "nodes", Some((name, rest))) => {
            let value = if root == "nodes" {
                scope.node(name)
            } else {
                scope.variable(name)
            };
            let collection = data.entry(root.clone()).or_insert_with(|| json!({}));
            let Value::Object(collection) = collection else { return };
            let Some(value) = value else { return };
            (value, (collection, name), rest)
        }
        _ => {
            let Some(value) = bare_name(scope, root) else { return };
            (value, (data, root), members)
        }
    };
    copy_part(&value, into.0, into.1, rest);
}

/// Copies the part of `value` at `rest` into `into[key]`. A list on the way is copied whole.
fn copy_part(value: &Value, into: &mut Map<String, Value>, key: &str, rest: &[String]) {
    match (value, rest.split_first()) {
        (Value::Object(fields), Some((member, rest))) => {
            let Value::Object(part) = into.entry(key).or_insert_with(|| json!({})) else {
                return;
            };
            if let Some(field) = fields.get(member) {
                copy_part(field, part, member, rest);
            }
        }
        _ => {
            into.insert(key.to_owned(), value.clone());
        }
    }
}

fn fault(error: &RenderError) -> ScriptFault {
    match error.reason() {
        RenderErrorReason::MissingVariable(path) => {
            ScriptFault::missing_path(RunErrorCode::TemplateError, path.as_deref().unwrap_or("a path"))
        }
        reason => ScriptFault::template(reason.to_string()),
    }
}

/// The paths a template names. A path inside `{{#each}}` or `{{#with}}` may be one of the item or one of the scope;
/// it is noted as one of the scope, where it may not exist.
#[derive(Default)]
struct Used {
    paths: BTreeSet<Vec<String>>,
    all: bool,
}

impl Used {
    fn template(&mut self, template: &mut BarTemplate) -> Result<(), TextFault> {
        for element in &mut template.elements {
            match element {
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => self.tag(tag)?,
                TemplateElement::HelperBlock(block) => self.block(block)?,
                TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
                // Decorators and partials, and what a later handlebars adds.
                _ => return Err(unknown("partials and decorators are not known here")),
            }
        }
        Ok(())
    }

    fn tag(&mut self, tag: &mut HelperTemplate) -> Result<(), TextFault> {
        let is_path = tag.params.is_empty() && tag.hash.is_empty();
        if is_path {
            // Values are shown by our helper: handlebars shows an object as `[object]`. It is told the path, for errors.
            let path = std::mem::replace(&mut tag.name, Parameter::Name(SHOW.into()));
            let shown = match &path {
                Parameter::Path(BarPath::Relative((_, raw)) | BarPath::Local((_, _, raw))) => json!(raw),
                _ => Value::Null,
            };
            tag.params.extend([path, Parameter::Literal(shown)]);
        } else {
            known_helper(&tag.name)?;
        }
        self.parameters(tag)
    }

    fn block(&mut self, block: &mut HelperTemplate) -> Result<(), TextFault> {
        known_helper(&block.name)?;
        self.parameters(block)?;
        if let (true, Some(turn)) = (is_named(&block.name, "each"), &mut block.template) {
            turn.elements.splice(0..0, STEP_TAG.elements.iter().cloned());
            // What it says of elements by their place.
            turn.mapping.splice(0..0, STEP_TAG.mapping.iter().cloned());
        }
        for inside in [&mut block.template, &mut block.inverse].into_iter().flatten() {
            self.template(inside)?;
        }
        Ok(())
    }

    fn parameters(&mut self, tag: &mut HelperTemplate) -> Result<(), TextFault> {
        tag.params
            .iter_mut()
            .chain(tag.hash.values_mut())
            .try_for_each(|parameter| self.parameter(parameter))
    }

    fn parameter(&mut self, parameter: &mut Parameter) -> Result<(), TextFault> {
        if let Some(list) = length_of(parameter) {
            let list = vec![Parameter::Path(list)];
            let length = Subexpression::new(Parameter::Name(LENGTH.into()), list, HashMap::new());
            *parameter = Parameter::Subexpression(length);
        }
        match parameter {
            Parameter::Path(BarPath::Relative((segments, raw))) => {
                let names = segments.iter().filter_map(|segment| match segment {
                    PathSeg::Named(name) => Some(name.clone()),
                    _ => None,
                });
                let path: Vec<String> = names.collect();
                self.all |= path.is_empty() || matches!(raw.as_str(), "this" | "." | "@root");
                self.paths.insert(path);
                Ok(())
            }
            Parameter::Subexpression(inner) => match inner.element.as_mut() {
                TemplateElement::Expression(tag) => {
                    known_helper(&tag.name)?;
                    self.parameters(tag)
                }
                _ => Ok(()),
            },
            // `@index`, literals, names of helpers.
            _ => Ok(()),
        }
    }
}

/// `list` of `list.length`: handlebars has no such member.
fn length_of(parameter: &Parameter) -> Option<BarPath> {
    let Parameter::Path(BarPath::Relative((_, raw))) = parameter else {
        return None;
    };
    BarPath::parse(raw.strip_suffix(".length")?).ok()
}

/// A path is dropped where another one takes it along.
fn without_tails(paths: BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let mut kept: BTreeSet<Vec<String>> = BTreeSet::new();
    for path in paths {
        // In order, a path comes directly after what it begins with.
        let has_head = kept.last().is_some_and(|last| path.starts_with(last));
        if !has_head && !path.is_empty() {
            kept.insert(path);
        }
    }
    kept
}

fn is_named(name: &Parameter, wanted: &str) -> bool {
    match name {
        Parameter::Name(name) | Parameter::Path(BarPath::Relative((_, name))) => name == wanted,
        _ => false,
    }
}

fn known_helper(name: &Parameter) -> Result<(), TextFault> {
    match name {
        Parameter::Name(name) if HELPERS.contains(&name.as_str()) => Ok(()),
        Parameter::Path(BarPath::Relative((_, name))) if HELPERS.contains(&name.as_str()) => Ok(()),
        Parameter::Name(name) | Parameter::Path(BarPath::Relative((_, name))) => {
            Err(unknown(&format!("there is no helper `{name}`")))
        }
        _ => Err(unknown("this is no helper")),
    }
}

fn unknown(message: &str) -> TextFault {
    TextFault {
        message: message.to_owned(),
        line: None,
        column: None,
    }
}

/// What a template can call: handlebars' own, without `log` (it writes to the host's log), and `json`.
const HELPERS: &[&str] = &[
    "if", "unless", "each", "with", "lookup", "raw", "eq", "ne", "gt", "gte", "lt", "lte", "and", "or", "not", "len",
    "json", SHOW, LENGTH, STEP,
];

/// How deep blocks, and brackets in a tag, may be nested: handlebars calls itself for each.
const MAX_DEPTH: usize = 100;

/// Bytes that a text may come to.
const MAX_TEXT: usize = 16 << 20;

/// What a text may be put together from: pieces, values, turns of loops.
const MAX_STEPS: usize = 1_000_000;

/// Counts a turn of a loop: one that writes nothing must end too.
const STEP: &str = "pirn-step";

/// `{{pirn-step}}`, as a helper is called.
static STEP_TAG: LazyLock<BarTemplate> =
    LazyLock::new(|| BarTemplate::compile(&format!("{{{{{STEP} 0}}}}")).unwrap_or_default());

/// Shows a value.
const SHOW: &str = "pirn-show";

/// The length of a list or text; of an object its member of that name.
const LENGTH: &str = "pirn-length";

static REGISTRY: LazyLock<Handlebars<'static>> = LazyLock::new(|| {
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
struct Bounded {
    text: String,
    steps: usize,
    is_over: bool,
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

/// How deep blocks and brackets are nested at most; an `{{else if}}` is a block in a block.
fn depth(source: &str) -> usize {
    let (mut blocks, mut brackets, mut deepest) = (0_usize, 0_usize, 0_usize);
    let mut tags = source.split("{{");
    tags.next();
    for tag in tags {
        let mark = tag.trim_start_matches(['{', '~']);
        if mark.starts_with(['#', '^']) || mark.trim_start().starts_with("else ") {
            blocks += 1;
        } else if mark.starts_with('/') {
            blocks = blocks.saturating_sub(1);
        }
        brackets = 0;
        for letter in tag.chars() {
            match letter {
                '(' => brackets += 1,
                ')' => brackets = brackets.saturating_sub(1),
                '}' => break,
                _ => {}
            }
            deepest = deepest.max(blocks + brackets);
        }
    }
    deepest.max(blocks + brackets)
}

/// `nodes["x"].y` and `items[0]` as handlebars writes them: `nodes.[x].y`, `items.[0]`. Only inside of tags.
fn with_dotted_brackets(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{{") {
        text.push_str(before);
        text.push_str("{{");
        let (inside, after) = tag
            .split_once("}}")
            .map_or((tag, ""), |(inside, _)| (inside, &tag[inside.len()..]));
        let mut before_bracket = String::new();
        let mut tail = inside;
        while let Some((head, bracket)) = tail.split_once('[') {
            let member = bracket.split_once(']').filter(|_| {
                head.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | ']'))
                    || (head.is_empty() && before_bracket.ends_with(']'))
            });
            before_bracket.push_str(head);
            tail = if let Some((name, after)) = member {
                let name = name.trim_matches(['"', '\'']);
                before_bracket.push_str(&[".[", name, "]"].concat());
                after
            } else {
                before_bracket.push('[');
                bracket
            };
        }
        text.push_str(&before_bracket);
        text.push_str(tail);
        rest = after;
    }
    text.push_str(rest);
    text
}
