//! Items of a MAP: inputs of its threads, and reducers of their variables.

use std::collections::BTreeMap;
use std::sync::Arc;

use pirn_definition::graph::{Evaluator, Graph, ITEM_INDEX, MapNode, REDUCED, Unevaluated};
use pirn_definition::script::Scope;
use pirn_definition::value::ValueBudget;
use serde_json::Value;

use super::data::effect::PendingReduction;
use super::data::entries::entries;
use super::spec::{spec_part, spec_value};

/// Returns the inputs of a MAP's threads, in item order. A value that is not a list, or too long, is returned unchanged: the node
/// reports the error.
///
/// # Errors
/// Returns the errors of its expressions, or `SCRIPT_LIMIT_EXCEEDED` if the inputs together are too large.
pub(super) fn item_inputs(
    graph: &Graph,
    map: &MapNode,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Arc<Value>, Unevaluated> {
    let items = match spec_value(graph, &map.items, scope, evaluator)? {
        // An object iterates as `{key, value}` entries, as in a loop.
        fields if fields.is_object() => Arc::new(fields.as_object().map(entries).unwrap_or_default()),
        items => items,
    };
    let (Some(input), Some(list)) = (&map.input, items.as_array()) else {
        // Without an `input` expression the item itself is the input of its thread. Other values are rejected by `nodes/map.rs`.
        return Ok(items);
    };
    // Checked here, so that no expression is evaluated for a list that the node rejects.
    if list.len() > map.max_items as usize {
        return Ok(items);
    }
    // One budget for all items: each input alone may be small and their list still too large.
    let mut room = ValueBudget::default();
    let mut inputs = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let scope = ScopeOver {
            outer: scope,
            // An item variable named `index` shadows the index.
            names: [&map.item_name, ITEM_INDEX],
            // The item is copied once here. Expressions share it by pointer.
            values: [Arc::new(item.clone()), Arc::new(index.into())],
        };
        inputs.push(spec_part(graph, input, &scope, evaluator, (&mut room, 1))?);
    }
    Ok(Arc::new(Value::Array(inputs)))
}

/// Returns the names of `count` items in events, errors and reports: their indices.
pub(crate) fn item_names(count: usize) -> Vec<String> {
    (0..count).map(|index| index.to_string()).collect()
}

/// Reduces the values that several paths gave each variable.
///
/// # Errors
/// Returns the errors of the expressions, or `SCRIPT_LIMIT_EXCEEDED` if the results together are too large.
pub(super) fn folded(
    graph: &Graph,
    folds: &[PendingReduction],
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Arc<Value>, Unevaluated> {
    // One budget for all variables, because their values form one list.
    let mut room = ValueBudget::default();
    let mut all = Vec::with_capacity(folds.len());
    for fold in folds {
        let mut values = fold.values.iter().cloned();
        // A single value needs no reducer. A fold without values does not occur: a variable is folded only if a path returned it.
        let mut a = values.next().unwrap_or_default();
        // In path order, not in order of arrival, so that a reducer which is not commutative gives equal results in a replay.
        for b in values {
            let over = ScopeOver {
                outer: scope,
                names: REDUCED,
                values: [a, b],
            };
            a = evaluator.value(graph, fold.expression, &over)?;
        }
        // Only final results count. Intermediate ones are dropped with the next iteration.
        room.take(&a, 1)?;
        // Copies only if the value is still shared, such as the single value of one path.
        all.push(Arc::unwrap_or_clone(a));
    }
    Ok(Arc::new(Value::Array(all)))
}

/// Scope of a thread with two additional names before its variables. If both names are equal, the first is used.
struct ScopeOver<'a> {
    outer: &'a dyn Scope,
    names: [&'a str; 2],
    values: [Arc<Value>; 2],
}

impl Scope for ScopeOver<'_> {
    fn input(&self) -> Arc<Value> {
        self.outer.input()
    }

    fn output(&self) -> Arc<Value> {
        self.outer.output()
    }

    fn variable(&self, name: &str) -> Option<Arc<Value>> {
        match self.names.iter().position(|own| *own == name) {
            // `position` returns the first of two equal names.
            Some(place) => Some(Arc::clone(&self.values[place])),
            None => self.outer.variable(name),
        }
    }

    fn variables(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        let mut all = self.outer.variables();
        // Variables of the thread with these names are hidden, as in `variable`.
        all.retain(|(name, _)| !self.names.contains(&&**name));
        // Reversed, because a map keeps the last of equal keys and the first name must win.
        let own = self.names.iter().zip(&self.values).rev();
        let own: BTreeMap<&str, &Arc<Value>> = own.map(|(name, value)| (*name, value)).collect();
        all.extend(
            own.into_iter()
                .map(|(name, value)| (Arc::from(name), Arc::clone(value))),
        );
        all
    }

    fn node(&self, id: &str) -> Option<Arc<Value>> {
        self.outer.node(id)
    }

    fn nodes(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        self.outer.nodes()
    }

    fn event(&self) -> Option<Arc<Value>> {
        self.outer.event()
    }

    fn knows(&self, name: &str) -> bool {
        // The two names are found by `variable` first: only other names are looked up here.
        self.outer.knows(name)
    }
}
