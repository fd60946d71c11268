//! The loops that a thread is in.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{RunError, RunErrorCode};
use crate::graph::NodeIx;
use crate::value::entries;

/// A loop under way, and the loop around it. A branch shares its parent's at no cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoopFrame {
    /// Its LOOP_START.
    pub(super) start: NodeIx,
    /// The iteration, from 0.
    pub(super) index: u64,
    items: LoopItems,
    max_iterations: Option<u64>,
    /// LOOP_END has gone on to the next item: LOOP_START is entered for it.
    pub(super) is_next: bool,
    /// The thread's steps when the loop began; every iteration counts from there.
    pub(super) steps: u64,
    /// Nodes in its history when the iteration began.
    pub(super) history: usize,
    pub(super) outer: Option<Arc<LoopFrame>>,
    /// The current item, once it was asked for: an item is copied once, however many texts read it.
    #[serde(skip)]
    current: OnceLock<Arc<Value>>,
    /// The same of what texts see as `loop`.
    #[serde(skip)]
    shown: OnceLock<Arc<Value>>,
}

/// The items of a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum LoopItems {
    /// 0, 1, 2, ... below this where it is given.
    Count(Option<u64>),
    List(Arc<Value>),
}

/// The turn a loop takes after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoopTurn {
    /// There is another item.
    Next,
    /// There is none.
    Over,
    /// There is one, but no more iterations are allowed.
    Limit,
}

impl LoopItems {
    fn of(iterable: Arc<Value>) -> Result<Self, RunError> {
        Ok(match &*iterable {
            Value::Array(_) => Self::List(iterable),
            Value::Object(fields) => Self::List(Arc::new(entries(fields))),
            Value::String(text) => {
                let items = text.chars().map(|character| Value::from(character.to_string()));
                Self::List(Arc::new(items.collect()))
            }
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
            Self::Count(count) => *count,
            Self::List(items) => Some(items.as_array().map_or(0, Vec::len) as u64),
        }
    }

    fn item(&self, index: u64) -> Arc<Value> {
        match self {
            Self::Count(_) => Arc::new(index.into()),
            Self::List(items) => Arc::new(items.get(index as usize).cloned().unwrap_or_default()),
        }
    }
}

fn whole(number: f64) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && (0.0..EXACT).contains(&number)).then_some(number as u64)
}

fn not_iterable(found: &str) -> RunError {
    let message = format!("a loop goes over a list, an object, a text or a whole number, not over {found}");
    RunError::new(RunErrorCode::NodeFailed, message)
}

impl LoopFrame {
    /// A loop that begins: over the items, or counting where there are none given.
    pub(super) fn new(
        start: NodeIx,
        iterable: Option<Arc<Value>>,
        max_iterations: Option<u64>,
    ) -> Result<Self, RunError> {
        Ok(Self {
            start,
            index: 0,
            items: iterable.map_or(Ok(LoopItems::Count(max_iterations)), LoopItems::of)?,
            max_iterations,
            is_next: false,
            steps: 0,
            history: 0,
            outer: None,
            current: OnceLock::new(),
            shown: OnceLock::new(),
        })
    }

    /// The list that it goes over, where it is one.
    pub(super) fn list(&self) -> Option<&Arc<Value>> {
        match &self.items {
            LoopItems::Count(_) => None,
            LoopItems::List(items) => Some(items),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.len() == Some(0)
    }

    /// The current item.
    pub(super) fn item(&self) -> Arc<Value> {
        Arc::clone(self.current.get_or_init(|| self.items.item(self.index)))
    }

    /// Goes on to the next item.
    pub(super) fn advance(&mut self) {
        self.index += 1;
        self.current = OnceLock::new();
        self.shown = OnceLock::new();
    }

    /// The turn the loop takes after the current iteration.
    pub(super) fn turn(&self) -> LoopTurn {
        let next = self.index + 1;
        match (self.items.len(), self.max_iterations) {
            (Some(len), _) if next >= len => LoopTurn::Over,
            (_, Some(most)) if next >= most => LoopTurn::Limit,
            (_, _) => LoopTurn::Next,
        }
    }

    /// `loop` in expressions and templates.
    pub(super) fn shown(&self) -> Arc<Value> {
        let show = || {
            Arc::new(json!({
                "index": self.index,
                "item": self.item(),
                "first": self.index == 0,
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
    fn m02_m03_m04_m07_what_can_be_gone_over_gives_its_items() {
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
