//! One entry of `[[tools]]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pirn_definition::definition::{BuiltInTool, nearest, variable_text_fault};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::limits::CallLimits;
use crate::arguments::shown;
use crate::template::Template;

/// Maximum length of a tool's name that every provider accepts.
const LONGEST_NAME: usize = 64;

/// A tool as a config file describes it.
#[derive(Clone, Debug)]
pub struct ToolConfig {
    /// The name in LLM nodes and for models.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// Limits on the calls.
    pub limits: CallLimits,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Command(CommandConfig),
    Http(HttpConfig),
}

/// A program, and the templates of its arguments.
#[derive(Clone, Debug)]
pub(crate) struct CommandConfig {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<Argument>,
    pub(crate) stdin: Option<Template>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) env_from: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) ok_exit_codes: Vec<i32>,
    /// True if values may start with `-`.
    pub(crate) allow_dashes: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Argument {
    One(Template),
    /// Omitted together if an argument is absent.
    Together(Vec<Template>),
}

/// An HTTP request, and the positions of a call's arguments in it.
#[derive(Clone, Debug)]
pub(crate) struct HttpConfig {
    pub(crate) method: Method,
    pub(crate) url: Template,
    /// The URL as configured, for display.
    pub(crate) source: String,
    pub(crate) query: BTreeMap<String, Template>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) headers_env: BTreeMap<String, String>,
    pub(crate) body: Option<Body>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Text(Template),
    Json(Shape),
}

/// JSON with templates in place of strings.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Text(Template),
    List(Vec<Shape>),
    Table(BTreeMap<String, Shape>),
    Plain(Value),
}

const COMMAND_EXAMPLE: &str = r#"command = { program = "git", args = ["log"] }"#;
const HTTP_EXAMPLE: &str = r#"http = { url = "https://..." }"#;

impl ToolConfig {
    /// Returns the tool's source, for display: `command git`, `http GET https://...`.
    pub fn source(&self) -> String {
        match &self.kind {
            Kind::Command(command) => format!("command {}", command.program.display()),
            Kind::Http(http) => format!("http {} {}", http.method, http.source),
        }
    }
}

pub(super) fn read(fields: &mut Fields<'_>, folder: &Path) -> ToolConfig {
    let name = fields.required("name");
    if !name.is_empty() && !is_name(&name) {
        fields.fault(
            "name",
            format!("a name has letters, digits, `_` and `-`, at most {LONGEST_NAME}: model providers take no other"),
        );
    }
    if BuiltInTool::of_name(&name).is_some() {
        fields.fault("name", "is the name of a built-in tool: rename this tool");
    }
    let description = fields.required("description");
    let input_schema = schema(fields);
    let properties = properties(&input_schema);
    let known = properties.as_deref();
    let limits = CallLimits::read(fields);
    let is_given = fields.has("command") || fields.has("http");
    let table = fields.table("command", COMMAND_EXAMPLE);
    let kind = match (table, fields.table("http", HTTP_EXAMPLE)) {
        (Some(table), None) => Kind::Command(fields.within("command", table, |fields| command(fields, folder, known))),
        (None, Some(table)) => Kind::Http(fields.within("http", table, |fields| http(fields, known))),
        (both, _) => {
            if both.is_some() {
                fields.fault("", "a tool has one of `command` and `http`, not both");
            } else if !is_given {
                fields.fault(
                    "",
                    format!("a tool needs a table `command` or `http`: {COMMAND_EXAMPLE}"),
                );
            }
            Kind::Command(CommandConfig::default())
        }
    };
    ToolConfig {
        name,
        description,
        input_schema,
        limits,
        kind,
    }
}

/// Returns whether every provider accepts this name for a tool.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain)
}

/// Reads the schema of the arguments; without a schema, the tool has no arguments.
fn schema(fields: &mut Fields<'_>) -> Value {
    let schema = match fields.value("inputSchema") {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema,
        Some(_) => {
            fields.fault("inputSchema", "must be a table: the JSON Schema of the arguments");
            return json!({});
        }
    };
    if schema.get("type") != Some(&json!("object")) {
        fields.fault("inputSchema/type", "must be \"object\": a call's arguments have names");
    }
    if let Err(error) = jsonschema::validator_for(&schema) {
        fields.fault("inputSchema", format!("is not a JSON Schema: {}", shown(&error)));
    }
    schema
}

/// Returns the names of the arguments, or `None` if the schema does not list them.
fn properties(schema: &Value) -> Option<Vec<String>> {
    let properties = schema.get("properties")?.as_object()?;
    Some(properties.keys().cloned().collect())
}

/// Parses a template that may refer to the arguments in `known`.
fn template(fields: &mut Fields<'_>, place: &str, source: &str, known: Option<&[String]>) -> Option<Template> {
    let template = match Template::parse(source) {
        Ok(template) => template,
        Err(message) => {
            fields.fault(place, message);
            return None;
        }
    };
    let Some(known) = known else { return Some(template) };
    for name in template.names() {
        if name != "input" && !known.iter().any(|other| other == name) {
            let near = nearest(name, known.iter().map(String::as_str));
            let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            fields.fault(
                place,
                format!("`{{{{{name}}}}}` is not a property of the schema{meant}"),
            );
        }
    }
    Some(template)
}

impl Default for CommandConfig {
    fn default() -> Self {
        Self {
            program: PathBuf::new(),
            args: Vec::new(),
            stdin: None,
            env: BTreeMap::new(),
            env_from: Vec::new(),
            cwd: None,
            ok_exit_codes: vec![0],
            allow_dashes: false,
        }
    }
}

fn command(fields: &mut Fields<'_>, folder: &Path, known: Option<&[String]>) -> CommandConfig {
    let program = program_at(&fields.required("program"), folder);
    let args = match fields.value("args") {
        None => Vec::new(),
        Some(Value::Array(list)) => list
            .into_iter()
            .enumerate()
            .filter_map(|(place, item)| argument(fields, &format!("args/{place}"), item, known))
            .collect(),
        Some(_) => {
            fields.fault("args", "must be a list");
            Vec::new()
        }
    };
    let stdin = fields.text("stdin");
    let stdin = stdin.and_then(|source| template(fields, "stdin", &source, known));
    CommandConfig {
        program,
        args,
        stdin,
        env: fields.text_table("env"),
        env_from: fields.variables("envFrom"),
        cwd: fields.text("cwd").map(|path| folder.join(path)),
        ok_exit_codes: exit_codes(fields),
        allow_dashes: fields.flag("allowDashes").unwrap_or(false),
    }
}

/// Resolves a program: a bare name is looked up in PATH, a path is relative to the config file's folder.
pub(super) fn program_at(written: &str, folder: &Path) -> PathBuf {
    if Path::new(written).components().count() > 1 {
        // Absolute, so that `cwd` does not change which program is started.
        std::path::absolute(folder.join(written)).unwrap_or_else(|_| folder.join(written))
    } else {
        PathBuf::from(written)
    }
}

fn argument(fields: &mut Fields<'_>, place: &str, item: Value, known: Option<&[String]>) -> Option<Argument> {
    match item {
        Value::String(source) => template(fields, place, &source, known).map(Argument::One),
        Value::Array(items) => {
            let mut together = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let place = format!("{place}/{index}");
                match item {
                    Value::String(source) => together.extend(template(fields, &place, &source, known)),
                    _other => fields.fault(&place, "must be a text"),
                }
            }
            Some(Argument::Together(together))
        }
        _other => {
            fields.fault(place, "must be a text, or a list of texts that are left out together");
            None
        }
    }
}

fn exit_codes(fields: &mut Fields<'_>) -> Vec<i32> {
    let Some(value) = fields.value("okExitCodes") else {
        return vec![0];
    };
    let codes: Option<Vec<i32>> = value.as_array().and_then(|codes| {
        let codes = codes.iter().map(|code| i32::try_from(code.as_i64()?).ok());
        codes.collect()
    });
    codes.filter(|codes| !codes.is_empty()).unwrap_or_else(|| {
        fields.fault("okExitCodes", "must be a list of exit codes");
        vec![0]
    })
}

fn http(fields: &mut Fields<'_>, known: Option<&[String]>) -> HttpConfig {
    const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
    let methods = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
    ];
    let method = fields.word("method", METHODS).and_then(|place| methods.get(place));
    let method = method.cloned().unwrap_or(Method::GET);
    let source = fields.required("url");
    let url = template(fields, "url", &source, known);
    if let Some(url) = url.as_ref().filter(|_| !source.is_empty()) {
        check_host(fields, url);
        // A fragment would also discard the `query`, which is appended.
        if source.contains('#') {
            fields.fault(
                "url",
                "must have no `#`: a fragment is not sent to the server; write `%23` for the character",
            );
        }
    }
    let query = fields.text_table("query").into_iter();
    let query = query.filter_map(|(name, source)| {
        let template = template(fields, &format!("query/{name}"), &source, known)?;
        Some((name, template))
    });
    let query = query.collect();
    let (headers, headers_env) = header_tables(fields);
    let body = match fields.value("body") {
        None => None,
        Some(Value::String(source)) => template(fields, "body", &source, known).map(Body::Text),
        Some(value) => Some(Body::Json(shape(fields, "body", value, known))),
    };
    HttpConfig {
        method,
        url: url.unwrap_or_else(Template::nothing),
        source,
        query,
        headers,
        headers_env,
        body,
    }
}

/// Reads `headers` and `headersEnv`.
pub(super) fn header_tables(fields: &mut Fields<'_>) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let tables = ["headers", "headersEnv"].map(|table| {
        let texts = fields.text_table(table);
        for name in texts.keys() {
            if reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
                fields.fault(&format!("{table}/{name}"), "is not a header name");
            }
        }
        if table == "headersEnv" {
            for (name, source) in &texts {
                if let Some(fault) = variable_text_fault(source) {
                    fields.fault(&format!("{table}/{name}"), fault);
                }
            }
        }
        texts
    });
    tables.into()
}

/// Requires a literal scheme and host, so that arguments cannot choose them.
fn check_host(fields: &mut Fields<'_>, url: &Template) {
    let beginning = url.beginning();
    let after = ["http://", "https://"]
        .iter()
        .find_map(|scheme| beginning.strip_prefix(scheme));
    // URL parsers skip extra slashes before a host, so the host must follow the scheme directly.
    let host_end = after.and_then(|after| after.find(['/', '?', '#', '\\']));
    match (after, host_end) {
        (None, _) => fields.fault("url", "must begin with http:// or https://, and no argument in it"),
        (Some(""), _) | (Some(_), Some(0)) => fields.fault("url", "has no host"),
        (Some(_), None) if !url.is_plain() => {
            fields.fault("url", "the host contains an argument, which must not choose the host");
        }
        (Some(_), _) => {
            if let Err(error) = reqwest::Url::parse(beginning) {
                fields.fault("url", format!("is not a URL: {error}"));
            }
        }
    }
}

fn shape(fields: &mut Fields<'_>, place: &str, value: Value, known: Option<&[String]>) -> Shape {
    match value {
        Value::String(source) => template(fields, place, &source, known).map_or(Shape::Plain(Value::Null), Shape::Text),
        Value::Array(items) => Shape::List(
            items
                .into_iter()
                .enumerate()
                .map(|(index, item)| shape(fields, &format!("{place}/{index}"), item, known))
                .collect(),
        ),
        Value::Object(table) => Shape::Table(shapes(fields, place, table, known)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Shape::Plain(plain),
    }
}

fn shapes(
    fields: &mut Fields<'_>,
    place: &str,
    table: Map<String, Value>,
    known: Option<&[String]>,
) -> BTreeMap<String, Shape> {
    let shapes = table.into_iter().map(|(name, value)| {
        let place = format!("{place}/{name}");
        (name, shape(fields, &place, value, known))
    });
    shapes.collect()
}
