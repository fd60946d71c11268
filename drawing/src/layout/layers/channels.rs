//! Horizontal lines between the rows. Links that share an end are one net and share one horizontal line; the nets of a channel have an
//! order from top to bottom.

use std::collections::BTreeMap;

use super::rows::Rows;

/// Number of nets of a channel above which their order follows from their ends alone.
const COMPARED: usize = 60;
/// Two vertical lines that are nearer to each other overlap.
const NEAR: i32 = 5;

/// Links that share a horizontal line.
#[derive(Clone, Debug, Default)]
pub(super) struct Net {
    pub(super) least: i32,
    pub(super) most: i32,
    /// Positions of the vertical lines that come from above, and of those that lead down.
    tops: Vec<i32>,
    bottoms: Vec<i32>,
}

impl Net {
    /// True if the net is one vertical line.
    pub(super) fn is_straight(&self) -> bool {
        self.least == self.most && !self.tops.is_empty() && !self.bottoms.is_empty()
    }
}

/// The nets of all channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    pub(super) nets: Vec<Net>,
    /// Net of each link, and of each turn unless it meets the side of its item.
    pub(super) of_link: Vec<usize>,
    pub(super) of_turn: Vec<usize>,
    /// The nets above each row, and below the last one, from top to bottom. Without those that are straight.
    pub(super) order: Vec<Vec<usize>>,
}

impl Channels {
    /// Builds and sorts the nets.
    pub(super) fn of(rows: &Rows, columns: &[i32]) -> Self {
        let mut channels = Self {
            order: vec![Vec::new(); rows.order.len() + 1],
            ..Self::default()
        };
        let mut groups = Groups::new(rows.ports.len());
        for link in &rows.links {
            groups.unite(link.upper, link.lower);
        }
        for turn in rows.turns.iter().filter(|turn| !turn.is_side) {
            groups.unite(turn.item, turn.line);
        }
        let x = |port: usize| columns[rows.ports[port].element] + rows.ports[port].offset;
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut add = |channels: &mut Self, ports: [usize; 2], groups: &mut Groups| {
            let number = *numbers.entry(groups.root(ports[0])).or_insert_with(|| {
                let port = &rows.ports[ports[0]];
                let row = rows.elements[port.element].row;
                channels.order[row + usize::from(!port.is_top)].push(channels.nets.len());
                channels.nets.push(Net {
                    least: i32::MAX,
                    most: i32::MIN,
                    ..Net::default()
                });
                channels.nets.len() - 1
            });
            let net = &mut channels.nets[number];
            for port in ports {
                net.least = net.least.min(x(port));
                net.most = net.most.max(x(port));
                if rows.ports[port].is_top {
                    net.bottoms.push(x(port));
                } else {
                    net.tops.push(x(port));
                }
            }
            number
        };
        for link in &rows.links {
            let number = add(&mut channels, [link.upper, link.lower], &mut groups);
            channels.of_link.push(number);
        }
        for turn in &rows.turns {
            let number = if turn.is_side {
                usize::MAX
            } else {
                add(&mut channels, [turn.item, turn.line], &mut groups)
            };
            channels.of_turn.push(number);
        }
        for net in &mut channels.nets {
            for ends in [&mut net.tops, &mut net.bottoms] {
                ends.sort_unstable();
                ends.dedup();
            }
        }
        for order in &mut channels.order {
            order.retain(|net| !channels.nets[*net].is_straight());
            sort(&channels.nets, order);
        }
        channels
    }
}

/// Sorts nets so that few lines cross, and vertical lines of two nets do not overlap.
fn sort(nets: &[Net], order: &mut [usize]) {
    order.sort_by_key(|net| {
        let Net {
            least,
            most,
            tops,
            bottoms,
        } = &nets[*net];
        // Lines to the right: the rightmost one first. Lines to the left: the leftmost one first.
        let middle = |ends: &[i32]| {
            ends.iter().map(|end| i64::from(*end)).sum::<i64>() / i64::try_from(ends.len().max(1)).unwrap_or(i64::MAX)
        };
        let is_right = middle(bottoms) >= middle(tops);
        (is_right, if is_right { -i64::from(*least) } else { i64::from(*most) })
    });
    if order.len() > COMPARED {
        return;
    }
    for _ in 0..order.len() {
        let mut is_sorted = true;
        for at in 1..order.len() {
            let [one, other] = [&nets[order[at - 1]], &nets[order[at]]];
            if cost(one, other) > cost(other, one) {
                order.swap(at - 1, at);
                is_sorted = false;
            }
        }
        if is_sorted {
            break;
        }
    }
}

/// Returns the number of crossings if `upper` is above `lower`; overlaps count more.
fn cost(upper: &Net, lower: &Net) -> usize {
    let within = |ends: &[i32], net: &Net| ends.iter().filter(|end| (net.least..=net.most).contains(*end)).count();
    let overlaps = upper
        .bottoms
        .iter()
        .flat_map(|bottom| lower.tops.iter().filter(move |top| (*bottom - **top).abs() < NEAR));
    within(&upper.bottoms, lower) + within(&lower.tops, upper) + 100 * overlaps.count()
}

/// Disjoint sets of ports.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    fn unite(&mut self, one: usize, other: usize) {
        let [one, other] = [self.root(one), self.root(other)];
        self.0[one.max(other)] = one.min(other);
    }
}
