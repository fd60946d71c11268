//! Checks that every workflow in a page runs and gives the documented output, and that every excerpt of a file is in that file.

use pirn::Engine;
use pirn::check::{SourceFile, World, check};
use serde_json::Value;

use super::{Block, blocks, page, pages, root};

/// An example: a workflow, its input and its expected output.
struct Example {
    place: String,
    workflow: String,
    input: Value,
    output: Value,
}

fn parsed(block: &Block, place: &str) -> Value {
    serde_json::from_str(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"))
}

fn examples(name: &str) -> Vec<Example> {
    let page = page(name);
    let mut found: Vec<Example> = Vec::new();
    let mut is_open = false;
    for block in blocks(&page) {
        let place = format!("{name}:{}", block.line);
        if block.is("workflow") {
            assert!(!is_open, "{place}: the workflow before it has no output");
            is_open = true;
            found.push(Example {
                place,
                workflow: block.text,
                input: Value::Null,
                output: Value::Null,
            });
        } else if block.is("input") {
            found.last_mut().expect("a workflow before it").input = parsed(&block, &place);
        } else if block.is("output") {
            assert!(is_open, "{place}: there is no workflow before it");
            is_open = false;
            found.last_mut().expect("a workflow before it").output = parsed(&block, &place);
        }
    }
    assert!(!is_open, "{name}: the last workflow has no output");
    found
}

#[test]
fn every_example_is_valid_and_gives_the_output_that_follows_it() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for example in pages().iter().flat_map(|name| examples(name)) {
        count += 1;
        let file = SourceFile::new(example.place.clone(), example.workflow.clone());
        let checked = check(&[file], &World::default());
        assert!(
            checked.faults().is_empty(),
            "{}: {:#?}",
            example.place,
            checked.faults()
        );
        let workflow = checked.graphs()[0].workflow_id.to_string();
        let engine = Engine::builder()
            .checked(checked)
            .simulated(1)
            .build()
            .expect("it is valid");
        let run = engine.start(workflow, example.input).expect("admitted");
        engine.cancel_if_deadlocked(&run);
        let report = run.outcome_blocking();
        if report.output != example.output {
            wrong.push(format!(
                "{}: {} {:?}",
                example.place,
                report.output,
                report.error.as_ref().map(ToString::to_string)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 20, "{count} examples");
}

#[test]
fn every_excerpt_of_a_file_is_in_that_file() {
    for name in pages() {
        for block in blocks(&page(&name)) {
            let Some(path) = block.info.iter().find_map(|word| word.strip_prefix("file=")) else {
                continue;
            };
            let file = std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(
                file.contains(&block.text),
                "{name}:{}: {path} does not have it",
                block.line
            );
        }
    }
}

#[test]
fn every_block_marked_json_is_valid_json() {
    for name in pages() {
        for block in blocks(&page(&name)) {
            let place = format!("{name}:{}", block.line);
            let is_whole = !block.info.iter().any(|word| word.starts_with("file="));
            if block.language == "json" && is_whole {
                parsed(&block, &place);
            }
        }
    }
}
