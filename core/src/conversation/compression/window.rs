//! `sliding_window`: retains system and pinned messages, the first messages, and as many of the last ones as a limit allows.

use std::ops::Range;
use std::sync::Arc;

use super::super::{tool_blocks, widen};
use super::parameters::Window;
use super::turn::current_turn_start;
use crate::message::{Message, Role};

/// Selects the retained messages. The window grows from the end by tool blocks and single messages. A `count` that ends inside a
/// block includes the whole block. `maxTokens`, which also covers system messages and head, excludes a block that does not fit. The
/// current turn is always included.
pub(super) fn window(visible: &[Arc<Message>], costs: &[u64], window: Window) -> Vec<bool> {
    if window.count.is_none() && window.max_tokens.is_none() {
        return vec![true; visible.len()];
    }
    let turn = current_turn_start(visible);
    let is_system = |at: usize| visible[at].role == Role::System;
    let mut others = 0;
    let mut kept: Vec<bool> = (0..visible.len())
        .map(|at| {
            others += usize::from(!is_system(at));
            is_system(at) || visible[at].pin || others <= window.keep_head || at >= turn
        })
        .collect();
    widen(visible, &mut kept);
    let mut tokens = sum(costs
        .iter()
        .zip(&kept)
        .filter(|(_, kept)| **kept)
        .map(|(cost, _)| *cost));
    let mut held = (turn..visible.len()).filter(|at| !is_system(*at)).count();
    for unit in units(visible).into_iter().rev().filter(|unit| unit.start < turn) {
        if is_system(unit.start) {
            continue;
        }
        let full = window.count.is_some_and(|count| held >= count);
        let missing = sum(unit.clone().filter(|at| !kept[*at]).map(|at| costs[at]));
        let after = tokens.saturating_add(missing);
        if full || window.max_tokens.is_some_and(|budget| after > budget && missing > 0) {
            break;
        }
        held += unit.len();
        tokens = after;
        kept[unit].fill(true);
    }
    kept
}

/// Returns the tool blocks and all messages outside of blocks, in order.
pub(super) fn units(visible: &[Arc<Message>]) -> Vec<Range<usize>> {
    let mut units = Vec::new();
    let mut at = 0;
    for block in tool_blocks(visible) {
        units.extend((at..block.start).map(|single| single..single + 1));
        at = block.end;
        units.push(block);
    }
    units.extend((at..visible.len()).map(|single| single..single + 1));
    units
}

fn sum(costs: impl Iterator<Item = u64>) -> u64 {
    costs.fold(0, u64::saturating_add)
}
