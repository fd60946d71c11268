//! `sliding_window`: retains system and pinned messages, the first messages, and as many of the last ones as a limit allows.

use std::ops::Range;
use std::sync::Arc;

use pirn_definition::message::{Message, Role};

use super::super::{tool_blocks, widen};
use super::parameters::Window;
use super::turn::current_turn_start;

/// Selects the retained messages. The window grows from the end by tool blocks and single messages. A `count` that ends inside a
/// block includes the whole block. `maxTokens`, which also covers system messages and head, excludes a block that does not fit. The
/// current turn is always included.
pub(super) fn window(visible: &[Arc<Message>], costs: &[u64], window: Window) -> Vec<bool> {
    // Without a limit the window is the whole conversation.
    if window.count.is_none() && window.max_tokens.is_none() {
        return vec![true; visible.len()];
    }
    let turn = current_turn_start(visible);
    let is_system = |at: usize| visible[at].role == Role::System;
    let mut others = 0;
    let mut kept: Vec<bool> = (0..visible.len())
        .map(|at| {
            others += usize::from(!is_system(at));
            // These are retained regardless of the limit, so that the window below only adds to them.
            is_system(at) || visible[at].pin || others <= window.keep_head || at >= turn
        })
        .collect();
    // Before the tokens are summed: the rest of a block counts too.
    widen(visible, &mut kept);
    let mut tokens = sum(costs
        .iter()
        .zip(&kept)
        .filter(|(_, kept)| **kept)
        .map(|(cost, _)| *cost));
    // The current turn counts towards `count`, although it is always retained.
    let mut held = (turn..visible.len()).filter(|at| !is_system(*at)).count();
    // From the end, because the window grows backwards. The current turn is retained already.
    for unit in units(visible).into_iter().rev().filter(|unit| unit.start < turn) {
        // System messages are retained and do not count.
        if is_system(unit.start) {
            continue;
        }
        let full = window.count.is_some_and(|count| held >= count);
        // Pinned messages and the head are in `tokens` already.
        let missing = sum(unit.clone().filter(|at| !kept[*at]).map(|at| costs[at]));
        let after = tokens.saturating_add(missing);
        if full || window.max_tokens.is_some_and(|budget| after > budget && missing > 0) {
            // The window has no gaps: an older unit is not added after one that did not fit.
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
    // `tool_blocks` returns ranges in order that do not overlap.
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
