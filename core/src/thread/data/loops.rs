//! Active loops of a thread.

use std::sync::{Arc, OnceLock};

use pirn_definition::error::{RunError, RunErrorCode};
use pirn_definition::graph::NodeIx;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::entries::entries;

/// An active loop, linked to the enclosing one. A branch shares the frames of its parent without copying.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::thread) struct LoopFrame {
    /// The LOOP_START node.
    pub(in crate::thread) start: NodeIx,
    /// Index of the iteration, from 0.
    pub(in crate::thread) index: u64,
    items: LoopItems,
    max_iterations: Option<u64>,
    /// True if LOOP_END has advanced to the next item, so that LOOP_START is entered for it.
    pub(in crate::thread) is_next: bool,
    /// Number of the thread's steps at the start of the loop. Each iteration resets the count to it.
    pub(in crate::thread) steps: u64,
    /// Length of the history at the start of the iteration.
    pub(in crate::thread) history: usize,
    pub(in crate::thread) outer: Option<Arc<LoopFrame>>,
    /// Cached current item: it is copied once, not once for each expression.
    #[serde(skip)]
    current: OnceLock<Arc<Value>>,
    /// Cached value of `loop` in expressions.
    #[serde(skip)]
    shown: OnceLock<Arc<Value>>,
}

/// Items of a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum LoopItems {
    /// 0, 1, 2, ... up to this bound (exclusive), if there is one.
    Count(Option<u64>),
    List(Arc<Value>),
}

/// Decision after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::thread) enum LoopTurn {
    /// Continue with the next item.
    Next,
    /// The loop is over: no item remains.
    Over,
    /// An item remains, but the maximum number of iterations is reached.
    Limit,
}

impl LoopItems {
    fn of(iterable: Arc<Value>) -> Result<Self, RunError> {
        Ok(match &*iterable {
            Value::Array(_) => Self::List(iterable),
            // Converted once at the start of the loop, so that each iteration indexes a list.
            Value::Object(fields) => Self::List(Arc::new(entries(fields))),
            Value::String(text) => {
                // Characters, not bytes: an item is itself a valid string.
                let items = text.chars().map(|character| Value::from(character.to_string()));
                Self::List(Arc::new(items.collect()))
            }
            // JavaScript has only floating-point numbers: a whole number of a script may arrive as `3.0`.
            Value::Number(number) => match number.as_u64().or_else(|| whole(number.as_f64()?)) {
                Some(count) => Self::Count(Some(count)),
                None => return Err(not_iterable(&format!("the number {number}"))),
            },
            Value::Null => return Err(not_iterable("null")),
            Value::Bool(_) => return Err(not_iterable("true or false")),
        })
    }

    fn len(&self) -> Option<u64> {
        match self {
            // `None` for a counter without a maximum: only the break condition ends it.
            Self::Count(count) => *count,
            // `of` makes lists only, so that the default is never used.
            Self::List(items) => Some(items.as_array().map_or(0, Vec::len) as u64),
        }
    }

    fn item(&self, index: u64) -> Arc<Value> {
        match self {
            Self::Count(_) => Arc::new(index.into()),
            // The copy of the item is cached in `current`. `turn` keeps the index below the length.
            Self::List(items) => Arc::new(items.get(index as usize).cloned().unwrap_or_default()),
        }
    }
}

fn whole(number: f64) -> Option<u64> {
    // 2^53: from here on, a floating-point number does not identify one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && (0.0..EXACT).contains(&number)).then_some(number as u64)
}

fn not_iterable(found: &str) -> RunError {
    let message = format!("a loop goes over a list, an object, a text or a whole number, not over {found}");
    RunError::new(RunErrorCode::NodeFailed, message)
}

impl LoopFrame {
    /// Starts a loop over the items, or a counter if there are none.
    pub(in crate::thread) fn new(
        start: NodeIx,
        iterable: Option<Arc<Value>>,
        max_iterations: Option<u64>,
    ) -> Result<Self, RunError> {
        Ok(Self {
            start,
            index: 0,
            // A counter ends with `Over` at its maximum, because reaching it is its purpose. A list ends with `Limit`.
            items: iterable.map_or(Ok(LoopItems::Count(max_iterations)), LoopItems::of)?,
            max_iterations,
            is_next: false,
            // `nodes/loops.rs` sets these three when the loop is entered: an empty loop never is.
            steps: 0,
            history: 0,
            outer: None,
            current: OnceLock::new(),
            shown: OnceLock::new(),
        })
    }

    /// Returns the list of items, unless the loop counts.
    pub(in crate::thread) fn list(&self) -> Option<&Arc<Value>> {
        match &self.items {
            LoopItems::Count(_) => None,
            LoopItems::List(items) => Some(items),
        }
    }

    pub(in crate::thread) fn is_empty(&self) -> bool {
        self.items.len() == Some(0)
    }

    /// Returns the current item.
    pub(in crate::thread) fn item(&self) -> Arc<Value> {
        Arc::clone(self.current.get_or_init(|| self.items.item(self.index)))
    }

    /// Advances to the next item.
    pub(in crate::thread) fn advance(&mut self) {
        self.index += 1;
        // Both caches belong to the previous index.
        self.current = OnceLock::new();
        self.shown = OnceLock::new();
    }

    /// Returns the decision after the current iteration.
    pub(in crate::thread) fn turn(&self) -> LoopTurn {
        let next = self.index + 1;
        match (self.items.len(), self.max_iterations) {
            // Before the maximum: a loop whose last item is also the last permitted iteration ends normally.
            (Some(len), _) if next >= len => LoopTurn::Over,
            (_, Some(most)) if next >= most => LoopTurn::Limit,
            (_, _) => LoopTurn::Next,
        }
    }

    /// Returns the value of `loop` in expressions and templates.
    pub(in crate::thread) fn shown(&self) -> Arc<Value> {
        let show = || {
            Arc::new(json!({
                "index": self.index,
                "item": self.item(),
                "first": self.index == 0,
                // Also true at the maximum: no iteration follows in either case.
                "last": self.turn() != LoopTurn::Next,
            }))
        };
        Arc::clone(self.shown.get_or_init(show))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(iterable: Value) -> Vec<Value> {
        let mut frame = LoopFrame::new(0, Some(Arc::new(iterable)), None).expect("iterable");
        let mut found = Vec::new();
        while !frame.is_empty() {
            found.push(frame.shown()["item"].clone());
            if frame.turn() == LoopTurn::Over {
                break;
            }
            frame.advance();
        }
        found
    }

    #[test]
    fn m02_m03_m04_m07_every_iterable_value_is_converted_to_items() {
        assert_eq!(
            items(json!({"x": 1, "y": 2}))[0],
            json!({"key": "x", "value": 1}),
            "M02"
        );
        assert_eq!(
            items(json!(5)),
            [json!(0), json!(1), json!(2), json!(3), json!(4)],
            "M03"
        );
        assert_eq!(
            items(json!("h\u{e9}y")),
            [json!("h"), json!("\u{e9}"), json!("y")],
            "M04"
        );
        assert_eq!(items(json!([])), [] as [Value; 0], "M07");
        for other in [json!(null), json!(true), json!(-1), json!(1.5)] {
            assert!(
                LoopFrame::new(0, Some(Arc::new(other.clone())), None).is_err(),
                "{other}"
            );
        }
    }
}
