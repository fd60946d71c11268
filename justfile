# Short names for the commands of the README.

# List the recipes.
default:
    @just --list

# Run all checks of a change, or one step: fmt, clippy, test, doc, api, loom, count, deny, studio.
ci *steps:
    ./.ci/run {{steps}}

# Check one crate quickly: just check pirn-core
check crate="pirn-core":
    cargo clippy -p {{crate}} --all-targets -- -D warnings
    cargo test -p {{crate}}

# Run the models of the shared-memory primitives, with their mutants.
loom:
    cargo test -p pirn-loom-tests

# Run random tests with more cases: just fuzz 100000
fuzz cases="20000":
    PROPTEST_CASES={{cases}} cargo test --release -p pirn-definition -p pirn-conversation -p pirn-events -p pirn-core

# Run engines under load from many threads, and check that every run is accounted for: just stress 600
stress seconds="600":
    cargo run --release -p pirn-tests --bin stress -- --seconds {{seconds}}

# Run workers that share a PostgreSQL server, and kill, pause and disconnect them: just cluster 100
cluster rounds="5":
    PIRN_CLUSTER_ROUNDS={{rounds}} cargo test -p pirn-cli --test cluster every_run_ends_once -- --nocapture

# Measure every workload, with raw tokio and graph-flow for comparison; writes docs/performance.svg and docs/performance-table.md.
bench:
    benches/run

# Count instructions of the core workloads; `just count --check` compares them with the stored counts.
count *words:
    benches/count {{words}}

# Format everything.
fmt:
    cargo fmt --all

# Open the documentation of the workspace.
doc:
    cargo doc --workspace --exclude pirn-loom-tests --no-deps --open

# Run the actors in a million random and PCT schedules.
schedules count="1000000":
    cargo run --release -p pirn-tests --bin schedules -- {{count}}

# Build the archives of a release in target/release-files.
release *targets:
    release/build {{targets}}

# Build the packages of the published crates, and compile each from its package.
package *words:
    release/package {{words}}

# Run the long searches for faults; writes target/nightly.md.
nightly *searches:
    tests/nightly {{searches}}
