//! A trigger, inside a workflow or outside.

use super::Loader;
use super::nearest::nearest;
use crate::definition::TriggerDefinition;
use crate::definition::fault::FaultCode;
use crate::definition::json::{Json, Member, Tree};

/// Reads a trigger; `tree` is converted to canonical form.
pub(super) fn read_trigger(loader: &mut Loader, tree: &mut Tree) -> Option<TriggerDefinition> {
    if !tree.is_object() {
        loader.fault_in(
            FaultCode::InvalidValue,
            tree,
            format!("expected a trigger, found {}", tree.kind()),
        );
        return None;
    }
    for key in ["condition", "schedule"] {
        if tree.get(key).is_some_and(|value| matches!(value.value, Json::Null)) {
            tree.take(key);
        }
    }
    let word = tree.take("type");
    let is_word = |wanted: &str| {
        let word = word.as_ref().and_then(|word| word.value.as_text());
        word.is_some_and(|word| word.eq_ignore_ascii_case(wanted))
    };
    let has_schedule = tree.get("schedule").is_some();
    if is_word("schedule") || (word.is_none() && has_schedule) {
        if let Some(condition) = tree.take("condition") {
            let message = "a trigger of type SCHEDULE has `schedule` instead of `condition`";
            loader.fault_in(FaultCode::InvalidValue, &condition.value, message);
        }
        if !has_schedule {
            loader.fault_in(FaultCode::MissingField, tree, "missing field `schedule`");
        }
    } else if let Some(word) = word.as_ref().filter(|_| !is_word("event")) {
        let message = "`type`: expected EVENT or SCHEDULE";
        loader.fault_in(FaultCode::InvalidValue, &word.value, message);
    } else if let Some(schedule) = tree.take("schedule") {
        let message = "`schedule` is only for triggers of type SCHEDULE";
        loader.fault_in(FaultCode::InvalidValue, &schedule.value, message);
    } else if tree.get("condition").is_none() {
        loader.fault_in(FaultCode::MissingField, tree, "missing field `condition`");
    }
    resolve_status(loader, tree);
    if let Some(event) = tree
        .get_mut("condition")
        .and_then(|condition| condition.get_mut("eventType"))
        && let Json::Text(word) = &mut event.value
        && word.eq_ignore_ascii_case("NODE_CUSTOM_EVENT")
    {
        "CUSTOM".clone_into(word);
    }
    if let Some(action) = tree.get_mut("action") {
        move_parameters(loader, action);
        order_action(action);
    }
    loader.read::<TriggerDefinition>(tree, &["triggers"])
}

/// Converts `status: "ENABLED" | "DISABLED"` to `enabled`.
fn resolve_status(loader: &mut Loader, tree: &mut Tree) {
    let status = tree
        .take("status")
        .filter(|status| !matches!(status.value.value, Json::Null));
    let Some(status) = status else { return };
    if tree.get("enabled").is_some() {
        let message = "`status` is another name of `enabled`; remove one";
        loader.fault_in(FaultCode::DuplicateField, &status.value, message);
        return;
    }
    let word = status.value.as_text().unwrap_or_default().to_ascii_uppercase();
    let enabled = match word.as_str() {
        "ENABLED" => true,
        "DISABLED" => false,
        _ => {
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

/// Reports the fields of an action that belong into its `parameters`, and moves them there: they must not be reported as missing too.
fn move_parameters(loader: &mut Loader, action: &mut Tree) {
    let Some(members) = action.members_mut() else { return };
    let belongs = |member: &Member| matches!(member.key.as_str(), "type" | "parameters");
    let (own, moved): (Vec<_>, Vec<_>) = std::mem::take(members).into_iter().partition(belongs);
    *members = own;
    for Member { key, key_span, value } in moved {
        let message = format!("unknown field `{key}`");
        let fault = loader
            .source
            .fault(FaultCode::UnknownField, key_span, key_span, message);
        // A misspelt `type` or `parameters`.
        if let Some(near) = nearest(&key, ["type", "parameters"].into_iter()) {
            loader
                .out
                .faults
                .push(fault.with_help(format!("did you mean `{near}`?")));
            if action.get(near).is_none() {
                action.put(near, value);
            }
            continue;
        }
        let help = format!("write it in `parameters`: {{\"type\": ..., \"parameters\": {{\"{key}\": ...}}}}");
        loader.out.faults.push(fault.with_help(help));
        add_parameters(action);
        if let Some(parameters) = action.get_mut("parameters")
            && parameters.is_object()
            && parameters.get(&key).is_none()
        {
            parameters.put(&key, value);
        }
    }
}

/// Moves `type` before `parameters`, and adds empty parameters if there are none.
fn order_action(action: &mut Tree) {
    add_parameters(action);
    if let Some(word) = action.take("type") {
        action.put("type", word.value);
    }
}

/// Adds empty parameters to an action without any.
fn add_parameters(action: &mut Tree) {
    if action
        .get("parameters")
        .is_none_or(|given| matches!(given.value, Json::Null))
    {
        action.put("parameters", Tree::empty_object(action.span));
    }
}
