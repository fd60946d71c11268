//! Encoding of a record: version, time, effect, body, checksum. The checksum also covers the step's number and the checksum of
//! the preceding record; the first record follows a checksum of the run's id and definition. So a record in a wrong position is
//! detected like a changed bit.

use super::codec::{Decoder, Encoder, Malformed, checksum};
use crate::run::Record;

/// Version of the encoding.
const VERSION: u8 = 1;

/// Position of a record: number of its step, and checksum of the preceding record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) seq: u64,
    pub(crate) follows: u32,
}

/// Returns the checksum that precedes a run's first record.
pub(crate) fn root(run: &str, definition: &[u8]) -> u32 {
    checksum(&[b"run", run.as_bytes(), &[0], definition])
}

/// Encodes a record. Returns its bytes and its checksum, which the next record includes.
pub(crate) fn encode(record: &Record, place: Place) -> (Vec<u8>, u32) {
    let mut bytes = Encoder::with_capacity(record.body.len() + 32);
    bytes.byte(VERSION);
    bytes.number(record.at);
    bytes.optional_text(record.effect.as_deref());
    bytes.text(&record.body);
    bytes.seal(&seed(place))
}

/// Decodes the record at `place`. Returns it with its checksum.
pub(crate) fn decode(bytes: &[u8], place: Place) -> Result<(Record, u32), Malformed> {
    let (mut decoder, sum) = Decoder::open(bytes, &seed(place))?;
    decoder.version(VERSION)?;
    let record = Record {
        at: decoder.number()?,
        effect: decoder.optional_text()?,
        body: decoder.text()?,
    };
    decoder.end()?;
    Ok((record, sum))
}

fn seed(place: Place) -> [u8; 12] {
    let mut seed = [0; 12];
    seed[..8].copy_from_slice(&place.seq.to_le_bytes());
    seed[8..].copy_from_slice(&place.follows.to_le_bytes());
    seed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = Record> {
        (any::<u64>(), proptest::option::of(".{0,40}"), ".{0,300}").prop_map(|(at, effect, body)| Record {
            at,
            effect,
            body,
        })
    }

    fn places() -> impl Strategy<Value = Place> {
        (any::<u64>(), any::<u32>()).prop_map(|(seq, follows)| Place { seq, follows })
    }

    proptest! {
        #[test]
        fn a_record_round_trips(record in records(), place in places()) {
            let (bytes, sum) = encode(&record, place);
            prop_assert_eq!(decode(&bytes, place), Ok((record, sum)));
        }

        #[test]
        fn a_flipped_bit_is_detected(record in records(), place in places(), bit in any::<prop::sample::Index>()) {
            let (mut bytes, _) = encode(&record, place);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&bytes, place).is_err());
        }

        #[test]
        fn a_truncated_or_lengthened_record_is_detected(record in records(), place in places(), cut in any::<prop::sample::Index>()) {
            let (mut bytes, _) = encode(&record, place);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())], place).is_err());
            bytes.push(0);
            prop_assert!(decode(&bytes, place).is_err());
        }

        #[test]
        fn a_misplaced_record_is_detected(record in records(), place in places(), other in places()) {
            prop_assume!(place != other);
            let (bytes, _) = encode(&record, place);
            prop_assert!(decode(&bytes, other).is_err());
        }

        #[test]
        fn any_bytes_are_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), place in places()) {
            prop_assert!(decode(&bytes, place).is_err());
        }
    }

    #[test]
    fn a_record_adds_at_most_16_bytes_to_its_content() {
        let record = Record::new(1_800_000_000_000, "x".repeat(100)).effect("e".repeat(10));
        let (bytes, _) = encode(&record, Place { seq: 1, follows: 0 });
        assert!(bytes.len() <= 110 + 16, "{}", bytes.len());
    }
}
