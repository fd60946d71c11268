//! Bytes of the stored rows: encoding of numbers, texts, records and other rows, with checksums, and encryption of values.
//!
//! Not here: the tables that have the rows, which are in `tables`.

pub(super) mod cipher;
pub(super) mod codec;
pub(super) mod records;
pub(super) mod rows;
