# Short names for what the README spells out with cargo.

# List the recipes.
default:
    @just --list

# Everything a change must pass, or one step of it: fmt, clippy, test, doc, loom, deny.
ci *steps:
    ./.ci/run {{steps}}

# Check one crate quickly: just check pirn-core
check crate="pirn-core":
    cargo clippy -p {{crate}} --all-targets -- -D warnings
    cargo test -p {{crate}}

# The models of the shared-memory primitives, with their mutants.
loom:
    cargo test -p pirn-loom-tests

# Format everything.
fmt:
    cargo fmt --all

# Open the documentation of the workspace.
doc:
    cargo doc --workspace --exclude pirn-loom-tests --no-deps --open
