//! Nothing: what there is to see is in `tests/face.rs`, which depends on `pirn` alone.
