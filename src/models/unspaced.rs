//! Scripts that put no spaces between words.

/// Whether `c` is of a script that puts no spaces between words, or its punctuation.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0x2e80..=0x9fff | 0xf900..=0xfaff | 0xff00..=0xffef | 0x2_0000..=0x3_ffff)
}
