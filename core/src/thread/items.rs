//! The items of a MAP, and the inputs of the threads that they are for.

use std::sync::Arc;

use serde_json::Value;

use super::evaluate::{part, spec_value};
use crate::graph::{Evaluator, Graph, ITEM_INDEX, MapNode, Unevaluated};
use crate::script::Scope;
use crate::value::{ValueBudget, entries};

/// The inputs of a MAP's threads, in item order. What is no list, or longer than the MAP takes, is handed on as it is: the
/// node says what is wrong with it.
///
/// # Errors
/// As its texts; `SCRIPT_LIMIT_EXCEEDED` where the inputs together become too large.
pub(super) fn item_inputs(
    graph: &Graph,
    map: &MapNode,
    scope: &dyn Scope,
    evaluator: &mut dyn Evaluator,
) -> Result<Arc<Value>, Unevaluated> {
    let items = match spec_value(graph, &map.items, scope, evaluator)? {
        fields if fields.is_object() => Arc::new(fields.as_object().map(entries).unwrap_or_default()),
        items => items,
    };
    let (Some(input), Some(list)) = (&map.input, items.as_array()) else {
        return Ok(items);
    };
    if list.len() > map.max_items as usize {
        return Ok(items);
    }
    let mut room = ValueBudget::default();
    let mut inputs = Vec::with_capacity(list.len());
    for (index, item) in list.iter().enumerate() {
        let scope = ItemScope {
            outer: scope,
            name: &map.item_name,
            item: Arc::new(item.clone()),
            index: Arc::new(index.into()),
        };
        inputs.push(part(graph, input, &scope, evaluator, (&mut room, 1))?);
    }
    Ok(Arc::new(Value::Array(inputs)))
}

/// The names of so many items in events, errors and reports: their indices.
pub(crate) fn item_names(count: usize) -> Vec<String> {
    (0..count).map(|index| index.to_string()).collect()
}

/// A thread's scope, with an item and its index before the variables.
struct ItemScope<'a> {
    outer: &'a dyn Scope,
    name: &'a Arc<str>,
    item: Arc<Value>,
    index: Arc<Value>,
}

impl Scope for ItemScope<'_> {
    fn input(&self) -> Arc<Value> {
        self.outer.input()
    }

    fn output(&self) -> Arc<Value> {
        self.outer.output()
    }

    fn variable(&self, name: &str) -> Option<Arc<Value>> {
        if name == &**self.name {
            Some(Arc::clone(&self.item))
        } else if name == ITEM_INDEX {
            Some(Arc::clone(&self.index))
        } else {
            self.outer.variable(name)
        }
    }

    fn variables(&self) -> Vec<(Arc<str>, Arc<Value>)> {
        let mut all = self.outer.variables();
        all.retain(|(name, _)| name != self.name && &**name != ITEM_INDEX);
        if &**self.name != ITEM_INDEX {
            all.push((Arc::from(ITEM_INDEX), Arc::clone(&self.index)));
        }
        all.push((Arc::clone(self.name), Arc::clone(&self.item)));
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
        self.outer.knows(name)
    }
}
