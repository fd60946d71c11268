//! Tests that change or measure their whole process.

#[cfg(unix)]
mod kill_all;
mod leaks;
