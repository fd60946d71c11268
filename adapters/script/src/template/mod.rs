//! Templates: text with `{{path}}`, and with the blocks and helpers of handlebars.
//!
//! A template of text and paths is rendered directly from the scope. For one with blocks or helpers, only the paths that it uses
//! are copied into the data from which it is rendered.
//!
//! Not here: the names of the scope, which are in `pirn_definition::script`.

mod fault;
mod helpers;
mod source;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use handlebars::template::{HelperTemplate, Parameter, Subexpression, TemplateElement};
use handlebars::{
    Context, Path as BarPath, PathSeg, RenderContext, RenderError, RenderErrorReason, Renderable,
    Template as BarTemplate,
};
use pirn_definition::definition::nearest;
use pirn_definition::error::RunErrorCode;
use pirn_definition::script::place;
use pirn_definition::script::{PlainText, Scope, ScriptFault, bare_name};
use serde_json::{Map, Value, json};

pub(crate) use self::fault::free_names as names_of_template;
pub use self::fault::place_in_tags;
pub use self::helpers::template_helpers;
use self::helpers::{BoundedOutput, HELPERS, LENGTH, NEED_VALUES, PRESENT, REGISTRY, SHOW, STEP_TAG};
use self::source::{depth, with_dotted_brackets};
use crate::TextFault;

/// Maximum nesting of blocks, and of parentheses in a tag, because handlebars is recursive.
const MAX_DEPTH: usize = 100;

/// A compiled template.
#[derive(Debug)]
pub(super) enum Template {
    /// Text and paths only.
    Plain(PlainText),
    /// A template with blocks or helpers.
    Bars(Box<Bars>),
}

#[derive(Debug)]
pub(super) struct Bars {
    template: BarTemplate,
    /// The paths that it uses, split at their dots; none is a prefix of another.
    paths: BTreeSet<Vec<String>>,
    /// True if it uses the scope as a whole.
    uses_all: bool,
}

impl Template {
    pub(super) fn compile(source: &str) -> Result<Self, ScriptFault> {
        Self::parse(source).map_err(|fault| ScriptFault::template(fault.message))
    }

    /// Checks that `source` is a valid template.
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
            let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
            let near = error
                .pos()
                .map(|(line, column)| place::offset(source, number(line), number(column)));
            fault::of_syntax(source, near)
        })?;
        let mut used = UsedPaths::default();
        used.template(&mut template).map_err(|fault| match fault {
            NotKnown::Helper { name, message } => fault::about(source, &name, message),
            NotKnown::Tag(message) => unknown(message),
        })?;
        Ok(Self::Bars(Box::new(Bars {
            template,
            paths: without_tails(used.paths),
            uses_all: used.all,
        })))
    }

    /// Returns whether the template consists of text and paths only.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Renders the template; one with blocks or helpers must finish in time.
    pub(super) fn render(&self, scope: &dyn Scope, until: Option<Instant>) -> Result<String, ScriptFault> {
        match self {
            Self::Plain(plain) => plain.render(scope),
            Self::Bars(bars) => bars.render(scope, until),
        }
    }

    /// Returns the rendered text, or the value if the template is one `{{path}}`.
    pub(super) fn value(&self, scope: &dyn Scope, until: Option<Instant>) -> Result<Arc<Value>, ScriptFault> {
        match self {
            Self::Plain(plain) => plain.value(scope),
            Self::Bars(bars) => bars.render(scope, until).map(|text| Arc::new(Value::from(text))),
        }
    }
}

impl Bars {
    fn render(&self, scope: &dyn Scope, until: Option<Instant>) -> Result<String, ScriptFault> {
        let context = Context::from(self.data(scope));
        let mut output = BoundedOutput::new(until);
        let rendered = self
            .template
            .render(&REGISTRY, &context, &mut RenderContext::new(None), &mut output);
        match (output.over, rendered) {
            (Some(limit), _) => Err(ScriptFault::limit(limit)),
            (None, Err(error)) => Err(unrendered(&error)),
            (None, Ok(())) => Ok(output.text),
        }
    }

    /// Returns the values of the scope that the template uses, in the structure of their paths.
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

/// Copies the part of `value` at `rest` into `into[key]`. A list on the path is copied completely.
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

fn unrendered(error: &RenderError) -> ScriptFault {
    match error.reason() {
        RenderErrorReason::MissingVariable(Some(path)) => ScriptFault::missing_path(RunErrorCode::TemplateError, path),
        RenderErrorReason::MissingVariable(None) => ScriptFault::template("a value in a tag does not exist"),
        RenderErrorReason::ParamNotFoundForIndex(helper, place) => {
            ScriptFault::template(format!("the helper `{helper}` has no value number {}", place + 1))
        }
        // Output is written to memory, so only a limit can cause a write error.
        RenderErrorReason::IOError(limit) => ScriptFault::limit(limit.to_string()),
        reason => ScriptFault::template(reason.to_string()),
    }
}

/// An unknown element of a template.
enum NotKnown {
    Helper { name: String, message: String },
    Tag(&'static str),
}

/// The paths that a template uses. A path inside `{{#each}}` or `{{#with}}` may refer to the item or to the scope; it is recorded
/// for the scope, where it may not exist.
#[derive(Default)]
struct UsedPaths {
    paths: BTreeSet<Vec<String>>,
    all: bool,
}

impl UsedPaths {
    fn template(&mut self, template: &mut BarTemplate) -> Result<(), NotKnown> {
        for element in &mut template.elements {
            match element {
                TemplateElement::Expression(tag) | TemplateElement::HtmlExpression(tag) => self.tag(tag)?,
                TemplateElement::HelperBlock(block) => self.block(block)?,
                TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
                // Decorators and partials, and elements added by later versions of handlebars.
                _ => return Err(NotKnown::Tag("partials and decorators are not supported")),
            }
        }
        Ok(())
    }

    fn tag(&mut self, tag: &mut HelperTemplate) -> Result<(), NotKnown> {
        let is_path = tag.params.is_empty() && tag.hash.is_empty();
        if is_path {
            // A helper formats values, because handlebars shows an object as `[object]`. It receives the path for its errors.
            let path = std::mem::replace(&mut tag.name, Parameter::Name(SHOW.into()));
            let shown = raw_path(&path).map_or(Value::Null, Value::String);
            tag.params.extend([path, Parameter::Literal(shown)]);
        } else {
            known_helper(&tag.name)?;
        }
        self.parameters(tag)
    }

    fn block(&mut self, block: &mut HelperTemplate) -> Result<(), NotKnown> {
        known_helper(&block.name)?;
        self.parameters(block)?;
        if let (true, Some(turn)) = (is_named(&block.name, "each"), &mut block.template) {
            turn.elements.splice(0..0, STEP_TAG.elements.iter().cloned());
            // Source positions, which must correspond to the elements.
            turn.mapping.splice(0..0, STEP_TAG.mapping.iter().cloned());
        }
        for inside in [&mut block.template, &mut block.inverse].into_iter().flatten() {
            self.template(inside)?;
        }
        Ok(())
    }

    fn parameters(&mut self, tag: &mut HelperTemplate) -> Result<(), NotKnown> {
        let needs_values = NEED_VALUES.iter().any(|helper| is_named(&tag.name, helper));
        for parameter in tag.params.iter_mut().chain(tag.hash.values_mut()) {
            let raw = raw_path(parameter).filter(|_| needs_values);
            self.parameter(parameter)?;
            if let Some(raw) = raw {
                let value = std::mem::replace(parameter, Parameter::Literal(Value::Null));
                let values = vec![value, Parameter::Literal(Value::String(raw))];
                let present = Subexpression::new(Parameter::Name(PRESENT.into()), values, HashMap::new());
                *parameter = Parameter::Subexpression(present);
            }
        }
        Ok(())
    }

    fn parameter(&mut self, parameter: &mut Parameter) -> Result<(), NotKnown> {
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
            // Names such as `@index`, literals, and helper names are not paths.
            _ => Ok(()),
        }
    }
}

/// Returns a path as it is written.
fn raw_path(parameter: &Parameter) -> Option<String> {
    match parameter {
        Parameter::Path(BarPath::Relative((_, raw)) | BarPath::Local((_, _, raw))) => Some(raw.clone()),
        _ => None,
    }
}

/// Returns the path `list` of `list.length`, because handlebars has no such member.
fn length_of(parameter: &Parameter) -> Option<BarPath> {
    let Parameter::Path(BarPath::Relative((_, raw))) = parameter else {
        return None;
    };
    BarPath::parse(raw.strip_suffix(".length")?).ok()
}

/// Removes paths that have another path as a prefix.
fn without_tails(paths: BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let mut kept: BTreeSet<Vec<String>> = BTreeSet::new();
    for path in paths {
        // Sorted order places a path directly after its prefix.
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

fn known_helper(name: &Parameter) -> Result<(), NotKnown> {
    match name {
        Parameter::Name(name) if HELPERS.contains(&name.as_str()) => Ok(()),
        Parameter::Path(BarPath::Relative((_, name))) if HELPERS.contains(&name.as_str()) => Ok(()),
        Parameter::Name(name) | Parameter::Path(BarPath::Relative((_, name))) => {
            let near = nearest(name, super::template_helpers());
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            Err(NotKnown::Helper {
                name: name.clone(),
                message: format!("there is no helper `{name}`{meant}"),
            })
        }
        _ => Err(NotKnown::Tag(
            "a tag of several words must start with the name of a helper",
        )),
    }
}

fn unknown(message: &str) -> TextFault {
    TextFault {
        message: message.to_owned(),
        line: None,
        column: None,
    }
}
