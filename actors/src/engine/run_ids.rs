//! Ids of an engine's runs: `run-`, eight digits that differ between engines, and a number. Formatted by hand, because `format!`
//! is a measurable part of the cost of a small run.

use std::sync::Arc;

/// Maximum number of decimal digits of a `u64`.
const DIGITS: usize = 20;

/// Length of the prefix.
const BEFORE: usize = "run-01234567-".len();

#[derive(Debug)]
pub(crate) struct RunIds {
    before: [u8; BEFORE],
}

impl RunIds {
    pub(crate) fn new(seed: u64) -> Self {
        let text = format!("run-{:08x}-", seed as u32);
        let mut before = [b'-'; BEFORE];
        for (place, byte) in before.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        Self { before }
    }

    pub(crate) fn id_of(&self, number: u64) -> Arc<str> {
        let mut text = [0; BEFORE + DIGITS];
        // Digits are written from the end of the buffer, so their number need not be known.
        let (mut first, mut rest) = (text.len(), number);
        // The second condition writes one digit for the number 0.
        while rest > 0 || first == text.len() {
            first -= 1;
            text[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        first -= BEFORE;
        text[first..first + BEFORE].copy_from_slice(&self.before);
        // The buffer contains ASCII only, so the conversion cannot fail.
        std::str::from_utf8(&text[first..]).unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_equals_its_formatted_form() {
        for seed in [0, 0xab, 0xffff_ffff, 0x1_0000_0001, u64::MAX] {
            let ids = RunIds::new(seed);
            for number in [0, 1, 9, 10, 99, 12_345, u64::MAX] {
                assert_eq!(&*ids.id_of(number), format!("run-{:08x}-{number}", seed as u32));
            }
        }
    }
}
