//! An empty library. Its test `tests/face.rs` depends on `pirn` only, so it can use public items only.
