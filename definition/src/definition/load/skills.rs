//! Folders of skills in a workflow: each entry of `skills` becomes an object with the files of its folder.

use std::collections::BTreeSet;

use super::Loader;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Tree, parse};

/// Returns the folders of skills that the definitions of a text name.
pub fn skill_folders(text: &str) -> BTreeSet<String> {
    let mut folders = BTreeSet::new();
    // Most files have no skills and are not parsed twice.
    if text.contains("\"skills\"")
        && let Ok(mut parsed) = parse(text)
    {
        each_definition(&mut parsed.root, &mut |definition| {
            each_list(definition, &mut |items| {
                folders.extend(items.iter().filter_map(Tree::as_text).map(str::to_owned));
            });
        });
    }
    folders
}

/// Replaces the folders in a workflow by their files. An unreadable folder is a fault at its name.
pub(super) fn insert_skills(loader: &mut Loader, workflow: &mut Tree) {
    let mut faults = Vec::new();
    let source = &loader.source;
    each_list(workflow, &mut |items| {
        items.retain_mut(|item| {
            let Some(folder) = item.as_text().map(str::to_owned) else {
                return true;
            };
            match source.skills.get(&folder) {
                Some(Ok(files)) => {
                    let span = item.span;
                    let mut texts = Tree::empty_object(span);
                    for (path, text) in files {
                        texts.put(path, Tree::text(span, text.as_str()));
                    }
                    let mut skill = Tree::empty_object(span);
                    skill.put("folder", Tree::text(span, folder));
                    skill.put("files", texts);
                    *item = skill;
                    true
                }
                Some(Err(why)) => {
                    let message = format!("the skill `{folder}`: {why}");
                    faults.push(source.fault_in(FaultCode::InvalidValue, item, message));
                    false
                }
                None => {
                    let message = format!(
                        "the skill `{folder}`: a folder is read only with a workflow file on disk: load the file by its path, or give \
                         the skill as {{\"files\": {{\"SKILL.md\": TEXT}}}}"
                    );
                    faults.push(source.fault_in(FaultCode::InvalidValue, item, message));
                    false
                }
            }
        });
    });
    loader.out.faults.append(&mut faults);
}

/// Visits every definition of a text.
pub(super) fn each_definition(root: &mut Tree, visit: &mut dyn FnMut(&mut Tree)) {
    if let Json::List(items) = &mut root.value {
        return items.iter_mut().for_each(visit);
    }
    match root.get_mut("workflows").map(|workflows| &mut workflows.value) {
        Some(Json::List(items)) => items.iter_mut().for_each(visit),
        _ => visit(root),
    }
}

/// Visits the `skills` of a workflow's config and of its nodes.
fn each_list(workflow: &mut Tree, visit: &mut dyn FnMut(&mut Vec<Tree>)) {
    let mut visit_in = |owner: &mut Tree| {
        let skills = owner.get_mut("config").and_then(|config| config.get_mut("skills"));
        if let Some(Json::List(items)) = skills.map(|skills| &mut skills.value) {
            visit(items);
        }
    };
    visit_in(workflow);
    if let Some(Json::List(nodes)) = workflow.get_mut("nodes").map(|nodes| &mut nodes.value) {
        nodes.iter_mut().for_each(visit_in);
    }
}
