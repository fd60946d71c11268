//! A trigger, inside a workflow or outside.

use super::Loader;
use super::nearest::nearest;
use super::shape::{ACTIONS, TRIGGER};
use crate::definition::TriggerDefinition;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Tree};

/// Reads a trigger; `tree` is left in canonical form.
pub(super) fn read_trigger(loader: &mut Loader, tree: &mut Tree) -> Option<TriggerDefinition> {
    if !tree.is_object() {
        loader.fault_in(
            FaultCode::InvalidValue,
            tree,
            format!("expected a trigger, found {}", tree.kind()),
        );
        return None;
    }
    loader.normalise(&TRIGGER, tree);
    if let Some(word) = tree.take("type")
        && word.value.as_text() != Some("event")
    {
        loader.fault_in(
            FaultCode::InvalidValue,
            &word.value,
            "`type`: the only type of trigger is EVENT",
        );
    }
    resolve_status(loader, tree);
    if let Some(event) = tree
        .get_mut("condition")
        .and_then(|condition| condition.get_mut("eventType"))
        && let Json::Text(word) = &mut event.value
        && word == "NODE_CUSTOM_EVENT"
    {
        "CUSTOM".clone_into(word);
    }
    let known = tree
        .get_mut("action")
        .is_none_or(|action| normalise_action(loader, action));
    if !known {
        tree.take("action");
    }
    let before = loader.out.faults.len();
    let read = loader.read::<TriggerDefinition>(tree, &["triggers"]);
    if !known {
        // the missing `action` was reported as what it is
        let reported = loader.out.faults[before..]
            .iter()
            .position(|fault| fault.code == FaultCode::MissingField);
        if let Some(place) = reported {
            loader.out.faults.remove(before + place);
        }
    }
    read
}

/// `status: "ENABLED" | "DISABLED"` to `enabled`.
fn resolve_status(loader: &mut Loader, tree: &mut Tree) {
    let Some(status) = tree.take("status") else { return };
    if tree.get("enabled").is_some() {
        let message = "`status` and `enabled` say the same thing; keep one";
        loader.fault_in(FaultCode::DuplicateField, &status.value, message);
        return;
    }
    let enabled = match status.value.as_text() {
        Some("ENABLED") => true,
        Some("DISABLED") => false,
        Some(_) | None => {
            let message = "`status`: expected ENABLED or DISABLED";
            loader.fault_in(FaultCode::InvalidValue, &status.value, message);
            return;
        }
    };
    tree.put(
        "enabled",
        Tree {
            span: status.value.span,
            value: Json::Bool(enabled),
        },
    );
}

/// Brings the action into canonical form, `type` before `parameters`. Whether its type is known.
fn normalise_action(loader: &mut Loader, action: &mut Tree) -> bool {
    if !action.is_object() {
        return true;
    }
    if action.get("parameters").is_none() {
        let span = action.span;
        if let Some(members) = action.members_mut() {
            let value = Tree::empty_object(span);
            members.push(Member {
                key: "parameters".into(),
                key_span: span,
                value,
            });
        }
    }
    let Some(word) = action.take("type") else { return true };
    let text = word.value.as_text().unwrap_or_default().to_owned();
    let Some((_, shape)) = ACTIONS.iter().find(|(known, _)| *known == text) else {
        let message = format!("unknown trigger action `{text}`");
        let fault = loader.source.fault_in(FaultCode::InvalidValue, &word.value, message);
        let known = || ACTIONS.iter().map(|(known, _)| *known);
        let help = match nearest(&text, known()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("actions: {}", known().collect::<Vec<_>>().join(", ")),
        };
        loader.out.faults.push(fault.with_help(help));
        return false;
    };
    if let Some(parameters) = action.get_mut("parameters") {
        loader.normalise(shape, parameters);
    }
    action.put("type", word.value);
    true
}
