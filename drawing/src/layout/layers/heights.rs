//! Vertical positions. Rows and channels are stacked from top to bottom; each part moves up as far as the parts above it allow, so that
//! a high box does not leave free space next to it.
//!
//! Parts that overlap horizontally keep their order. This is enough for vertical lines to cross no box, because each end of such a
//! line is at a box or at a horizontal line.

use std::collections::BTreeMap;

use super::channels::Channels;
use super::rows::{Part, Rows};

/// Free space above and below a box, a label, and a horizontal line.
const BOX: i32 = 14;
const LABEL: i32 = 3;
const LINE: i32 = 5;
/// Horizontal distance at which a box has to be below a line.
const BESIDE_BOX: i32 = 12;
const BESIDE_LABEL: i32 = 4;
const BESIDE_LINE: i32 = 5;
/// Boxes of a row that are nearer to each other than this are aligned.
const ALIGNED: i32 = 64;

/// Vertical positions of the parts of a region.
#[derive(Debug, Default)]
pub(super) struct Heights {
    /// Upper edge of each element.
    pub(super) elements: Vec<i32>,
    /// Horizontal line of each net.
    pub(super) nets: Vec<i32>,
    pub(in crate::layout) height: i32,
}

/// Stacks the rows and channels.
pub(super) fn stack(rows: &Rows, columns: &[i32], channels: &Channels) -> Heights {
    let mut heights = Heights {
        elements: vec![0; rows.elements.len()],
        nets: vec![0; channels.nets.len()],
        height: 0,
    };
    let reach = reaches(rows, columns);
    let mut skyline = Skyline::default();
    for channel in 0..=rows.order.len() {
        for net in &channels.order[channel] {
            let one = &channels.nets[*net];
            let y = skyline.height(one.least - BESIDE_LINE, one.most + BESIDE_LINE) + LINE;
            heights.nets[*net] = y;
            skyline.raise(one.least, one.most, y + LINE);
        }
        if let Some(row) = rows.order.get(channel) {
            place_row(rows, row, columns, &reach, &mut heights, &mut skyline);
        }
    }
    heights.trim(rows, channels);
    heights
}

impl Heights {
    /// Removes the free space above the first part, and sets the height to the end of the last one.
    fn trim(&mut self, rows: &Rows, channels: &Channels) {
        let boxes = rows.elements.iter().zip(&self.elements);
        let boxes = boxes.filter(|(element, _)| matches!(element.part, Part::Item(_) | Part::Label(_)));
        let boxes = boxes.map(|(element, y)| [*y, y + element.height]);
        let lines = channels
            .order
            .iter()
            .flatten()
            .map(|net| [self.nets[*net] - LINE, self.nets[*net] + LINE]);
        let parts: Vec<[i32; 2]> = boxes.chain(lines).collect();
        let top = parts.iter().map(|[top, _]| *top).min().unwrap_or_default();
        self.height = parts.iter().map(|[_, bottom]| *bottom - top).max().unwrap_or_default();
        for y in self.elements.iter_mut().chain(&mut self.nets) {
            *y -= top;
        }
    }
}

/// Returns the ends of each element, including its connections with lines at its sides.
fn reaches(rows: &Rows, columns: &[i32]) -> Vec<[i32; 2]> {
    let mut reach: Vec<[i32; 2]> = rows
        .elements
        .iter()
        .zip(columns)
        .map(|(element, x)| [*x, x + element.width])
        .collect();
    for turn in rows.turns.iter().filter(|turn| turn.is_side) {
        let [item, line] = [rows.ports[turn.item].element, rows.ports[turn.line].element];
        let [least, most] = reach[item];
        reach[item] = [least.min(columns[line]), most.max(columns[line])];
    }
    reach
}

fn place_row(
    rows: &Rows,
    row: &[usize],
    columns: &[i32],
    reach: &[[i32; 2]],
    heights: &mut Heights,
    skyline: &mut Skyline,
) {
    let mut lowest: Vec<(i32, usize)> = Vec::new();
    for element in row {
        let [least, most] = reach[*element];
        let y = match rows.elements[*element].part {
            Part::Item(_) => skyline.height(least - BESIDE_BOX, most + BESIDE_BOX) + BOX,
            Part::Label(_) => skyline.height(least - BESIDE_LABEL, most + BESIDE_LABEL) + LABEL,
            Part::Point(_) | Part::Line => continue,
        };
        lowest.push((y, *element));
    }
    lowest.sort_unstable();
    let mut at = 0;
    while at < lowest.len() {
        let last = (at..lowest.len())
            .take_while(|next| lowest[*next].0 - lowest[at].0 < ALIGNED)
            .last()
            .unwrap_or(at);
        for (_, element) in &lowest[at..=last] {
            heights.elements[*element] = lowest[last].0;
        }
        at = last + 1;
    }
    for (_, element) in lowest {
        let one = &rows.elements[element];
        let bottom = heights.elements[element] + one.height;
        let space = if matches!(one.part, Part::Label(_)) { LABEL } else { BOX };
        let [least, most] = reach[element];
        skyline.raise(least, most, bottom - one.height / 2 + LINE);
        skyline.raise(columns[element], columns[element] + one.width, bottom + space);
    }
}

/// The lower edge of the parts so far, by horizontal position.
#[derive(Default)]
struct Skyline {
    /// Height from each position on, up to the next one.
    heights: BTreeMap<i32, i32>,
}

impl Skyline {
    /// Returns the greatest height between two positions, inclusive.
    fn height(&self, least: i32, most: i32) -> i32 {
        let before = self.heights.range(..=least).next_back().map(|(_, height)| *height);
        let within = self.heights.range(least..=most).map(|(_, height)| *height);
        within.chain(before).max().unwrap_or_default()
    }

    /// Raises the height between two positions, inclusive.
    fn raise(&mut self, least: i32, most: i32, height: i32) {
        let after = self
            .heights
            .range(..=most + 1)
            .next_back()
            .map_or(0, |(_, height)| *height);
        let before = self
            .heights
            .range(..=least)
            .next_back()
            .map_or(0, |(_, height)| *height);
        self.heights.entry(least).or_insert(before);
        self.heights.entry(most + 1).or_insert(after);
        for (_, old) in self.heights.range_mut(least..=most) {
            *old = height.max(*old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Skyline;

    #[test]
    fn the_skyline_is_the_greatest_height_at_each_position() {
        let mut skyline = Skyline::default();
        let mut expected = vec![0; 60];
        let mut seed = 7_u32;
        let mut next = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            i32::try_from((seed >> 16) % below).expect("a small number")
        };
        for _ in 0..200 {
            let (least, length, height) = (next(50), next(9), next(100));
            skyline.raise(least, least + length, height);
            for at in least..=least + length {
                expected[at as usize] = height.max(expected[at as usize]);
            }
            let from = next(50);
            let most = expected[from as usize..=from as usize + 9].iter().copied().max();
            assert_eq!(Some(skyline.height(from, from + 9)), most);
        }
    }
}
