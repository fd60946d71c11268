# Short names for what the README spells out with cargo.

# List the recipes.
default:
    @just --list

# Everything a change must pass, or one step of it: fmt, clippy, test, doc, loom, deny, count.
ci *steps:
    ./.ci/run {{steps}}

# Check one crate quickly: just check pirn-core
check crate="pirn-core":
    cargo clippy -p {{crate}} --all-targets -- -D warnings
    cargo test -p {{crate}}

# The models of the shared-memory primitives, with their mutants.
loom:
    cargo test -p pirn-loom-tests

# Random tests for longer: just fuzz 100000
fuzz cases="20000":
    PROPTEST_CASES={{cases}} cargo test --release -p pirn-core

# Real engines under load from many threads, with conservation checks: just stress 600
stress seconds="600":
    cargo run --release -p pirn-tests --bin stress -- --seconds {{seconds}}

# Workers that share a PostgreSQL server, killed, paused and cut off: just cluster 100
cluster rounds="5":
    PIRN_CLUSTER_ROUNDS={{rounds}} cargo test -p pirn-cli --test cluster every_run_ends_once -- --nocapture

# Every workload beside raw tokio and graph-flow; writes docs/performance.svg and docs/performance-table.md.
bench:
    benches/run

# Instructions of the core workloads; `just count --check` against what is kept.
count *words:
    benches/count {{words}}

# Format everything.
fmt:
    cargo fmt --all

# Open the documentation of the workspace.
doc:
    cargo doc --workspace --exclude pirn-loom-tests --no-deps --open

# The shipped actors in a million random and PCT orders.
schedules count="1000000":
    cargo run --release -p pirn-tests --bin schedules -- {{count}}
