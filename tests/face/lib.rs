//! An empty library: the tests are in `tests/face.rs`, which depends only on `pirn`.
