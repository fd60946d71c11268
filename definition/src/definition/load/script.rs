//! Script files: one that is a workflow, loaded as START, SCRIPT, END with the positions of faults in the script, and those that SCRIPT
//! nodes name by `file`.

use std::collections::BTreeSet;
use std::path::Path;

use super::skills::each_definition;
use super::{FaultCode, Loader, SourceFile};
use crate::definition::json::{Json, Span, Tree, parse};
use crate::definition::script_workflow::workflow_of_script;

/// The fault of a script file without text.
const EMPTY: &str = "the script file is empty: write JavaScript statements that `return` the result";

/// Returns true if the file of this name contains a script.
pub(super) fn is_script(name: &str) -> bool {
    matches!(Path::new(name).extension(), Some(extension) if extension == "js" || extension == "mjs")
}

pub(super) fn load(loader: &mut Loader, file: &SourceFile) {
    if file.text.is_empty() {
        let span = Span { start: 0, end: 0 };
        let fault = loader
            .source
            .fault(FaultCode::InvalidValue, span, span, EMPTY.to_owned());
        loader.out.faults.push(fault);
        return;
    }
    let stem = Path::new(&file.name).file_stem().and_then(|stem| stem.to_str());
    let workflow = match workflow_of_script(stem.unwrap_or("script"), &file.text) {
        Ok(workflow) => workflow.to_string(),
        Err(fault) => {
            let span = one_character(&file.text, fault.at);
            let fault = loader
                .source
                .fault(FaultCode::InvalidExpression, span, span, fault.message);
            loader.out.faults.push(fault);
            return;
        }
    };
    match parse(&workflow) {
        Ok(mut parsed) => {
            set_spans(&mut parsed.root, &file.text);
            loader.root(parsed.root);
        }
        // JSON that is nested too deeply or too large.
        Err(error) => {
            let span = one_character(&file.text, 0);
            let fault = loader.source.fault(error.code, span, span, error.message);
            loader.out.faults.push(fault);
        }
    }
}

/// Returns the span of the character at a byte offset; it is empty at the end of the script.
fn one_character(script: &str, at: usize) -> Span {
    let length = script
        .get(at..)
        .and_then(|rest| rest.chars().next())
        .map_or(0, char::len_utf8);
    Span {
        start: at as u32,
        end: (at + length) as u32,
    }
}

/// Returns the script files that the SCRIPT nodes of a text name.
pub fn script_files(text: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    // Most files name no scripts and are not parsed twice.
    if text.contains("\"file\"")
        && let Ok(mut parsed) = parse(text)
    {
        each_definition(&mut parsed.root, &mut |definition| {
            each_config(definition, &mut |config| {
                files.extend(config.get("file").and_then(Tree::as_text).map(str::to_owned));
            });
        });
    }
    files
}

/// Replaces `file` of the SCRIPT nodes by the text of the file. An unreadable file is a fault at its name.
pub(super) fn insert_scripts(loader: &mut Loader, workflow: &mut Tree) {
    let mut faults = Vec::new();
    let source = &loader.source;
    each_config(workflow, &mut |config| {
        let Some(path) = config.get("file").and_then(Tree::as_text).map(str::to_owned) else {
            return;
        };
        let Some(file) = config.take("file") else { return };
        let why = if config.get("code").is_some() {
            "either `code` or `file`, not both".to_owned()
        } else {
            match source.scripts.get(&path) {
                Some(Ok(text)) if text.is_empty() => "the file is empty".to_owned(),
                Some(Ok(text)) => return config.put("code", Tree::text(file.value.span, text.as_str())),
                Some(Err(why)) => why.to_string(),
                None => "it is read only with a workflow file on disk: load the file by its path, or give the script as `code`".to_owned(),
            }
        };
        let message = format!("the script `{path}`: {why}");
        faults.push(source.fault_in(FaultCode::InvalidValue, &file.value, message));
        // The missing code is no other fault.
        if config.get("code").is_none() {
            config.put("code", Tree::text(file.value.span, "return null"));
        }
    });
    loader.out.faults.append(&mut faults);
}

/// Visits the config of each SCRIPT node.
fn each_config(workflow: &mut Tree, visit: &mut dyn FnMut(&mut Tree)) {
    let Some(Json::List(nodes)) = workflow.get_mut("nodes").map(|nodes| &mut nodes.value) else {
        return;
    };
    for node in nodes {
        let is_script = node
            .get("type")
            .and_then(Tree::as_text)
            .is_some_and(|word| word.eq_ignore_ascii_case("SCRIPT"));
        if is_script {
            let name = if node.get("config").is_some() { "config" } else { "data" };
            node.get_mut(name).into_iter().for_each(&mut *visit);
        }
    }
}

/// Sets the span of every value to the start of the script, and that of the code to the whole script.
fn set_spans(tree: &mut Tree, script: &str) {
    let first = one_character(script, 0);
    tree.span = first;
    match &mut tree.value {
        Json::Text(text) if *text == *script => tree.span.end = script.len() as u32,
        Json::List(items) => items.iter_mut().for_each(|item| set_spans(item, script)),
        Json::Object(members) => {
            for member in members {
                member.key_span = first;
                set_spans(&mut member.value, script);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => {}
    }
}
