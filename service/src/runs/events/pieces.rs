//! JSON in pieces: equal parts of several events of a run are stored once.
//!
//! A rolling hash of the content decides where the text is cut, so equal values give equal pieces wherever they are in an event. A
//! list that grows shares all pieces except its last ones.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use axum::body::Bytes;

/// Maximum length of a text that is stored as one unshared piece: sharing it would cost more memory than it saves.
const WHOLE: usize = 2 << 10;

/// Minimum length of a piece, in bytes; only the last piece of a text is shorter.
const LEAST: usize = 1 << 10;

/// Maximum length of a piece, in bytes: a connection buffers one or two.
pub(crate) const MOST: usize = 16 << 10;

/// A piece ends where these bits of the rolling hash are 0: on average 4 KiB after `LEAST`.
const END: u64 = 0xFFF << 52;

/// Estimated memory of a piece in addition to its bytes: its entries in the list and the table, and two allocations.
const OVERHEAD: usize = 160;

/// A random number for each byte, for the rolling hash.
const GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = 0_u64;
    let mut place = 0;
    while place < table.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        table[place] = mixed ^ (mixed >> 31);
        place += 1;
    }
    table
}

/// A part of a text.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    hash: u64,
    bytes: Bytes,
}

impl Piece {
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A text that was cut and is not stored yet.
pub(crate) struct Cut<'a>(Vec<(u64, &'a [u8])>);

/// Cuts a text into pieces.
pub(crate) fn cut(text: &[u8]) -> Cut<'_> {
    if text.len() <= WHOLE {
        return Cut(vec![(0, text)]);
    }
    let mut parts = Vec::with_capacity(text.len() / LEAST / 4 + 1);
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(length(rest));
        let mut hasher = DefaultHasher::new();
        hasher.write(part);
        parts.push((hasher.finish(), part));
        rest = after;
    }
    Cut(parts)
}

/// Returns the length of the first piece.
fn length(text: &[u8]) -> usize {
    let most = text.len().min(MOST);
    let mut rolling = 0_u64;
    for (place, byte) in text[..most].iter().enumerate().skip(LEAST) {
        rolling = (rolling << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if rolling & END == 0 {
            return place + 1;
        }
    }
    most
}

/// The pieces of one run's texts.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Shared pieces by hash, with their reference counts.
    shared: HashMap<u64, (Bytes, usize)>,
    bytes: usize,
}

impl Pieces {
    /// Stores a text. Pieces that are stored already are shared.
    pub(crate) fn add(&mut self, cut: &Cut<'_>) -> Box<[Piece]> {
        let is_whole = cut.0.len() == 1;
        let pieces = cut.0.iter().map(|(hash, part)| {
            if !is_whole && let Some((known, places)) = self.shared.get_mut(hash)
                // On a hash collision the later piece is not shared.
                && **known == **part
            {
                *places += 1;
                return Piece {
                    hash: *hash,
                    bytes: known.clone(),
                };
            }
            // Copy: a slice would hold the whole text in memory.
            let bytes = Bytes::copy_from_slice(part);
            self.bytes += bytes.len() + OVERHEAD;
            if !is_whole {
                self.shared.entry(*hash).or_insert_with(|| (bytes.clone(), 1));
            }
            Piece { hash: *hash, bytes }
        });
        pieces.collect()
    }

    /// Releases the pieces of a text.
    pub(crate) fn remove(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let shared = self.shared.get_mut(&piece.hash);
            let shared = shared.filter(|(known, _)| known.as_ptr() == piece.bytes.as_ptr());
            if let Some((_, places)) = shared {
                *places -= 1;
                if *places > 0 {
                    continue;
                }
                self.shared.remove(&piece.hash);
            }
            self.bytes -= piece.bytes.len() + OVERHEAD;
        }
    }

    /// Returns the memory of all pieces.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
    }

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn a_value_that_occurs_in_many_events_is_stored_once() {
        let value = noise(1, 80_000);
        let mut pieces = Pieces::default();
        for n in 0..100 {
            let text = [format!("{{\"sequence\":{n}, \"output\":").as_bytes(), &value, b"}"].concat();
            let added = pieces.add(&cut(&text));
            assert_eq!(joined(&added), text);
        }
        assert!(pieces.bytes() < 20 * value.len(), "{} bytes", pieces.bytes());
    }

    #[test]
    fn a_growing_list_shares_all_pieces_but_the_last() {
        let list = noise(2, 400_000);
        let mut pieces = Pieces::default();
        for n in 1..=100 {
            pieces.add(&cut(&list[..n * 4_000]));
        }
        assert!(pieces.bytes() < 4 * list.len(), "{} bytes", pieces.bytes());
    }

    proptest! {
        #[test]
        fn pieces_restore_the_text_and_are_released(
            texts in prop::collection::vec((0..3_u64, 0..30_000_usize, 0..50_usize), 1..12),
        ) {
            let mut pieces = Pieces::default();
            let added: Vec<_> = texts.iter().map(|(seed, length, before)| {
                let mut text = vec![b' '; *before];
                text.extend(noise(*seed, *length));
                let added = pieces.add(&cut(&text));
                (text, added)
            }).collect();
            for (text, added) in &added {
                prop_assert_eq!(&joined(added), text);
                prop_assert!(added.iter().all(|piece| piece.bytes.len() <= MOST));
            }
            for (_, added) in &added {
                pieces.remove(added);
            }
            prop_assert_eq!(pieces.bytes(), 0);
            prop_assert!(pieces.shared.is_empty());
        }
    }
}
