//! The examples of the repository.
//!
//! `PIRN_DRAW_TO=FOLDER cargo test -p pirn-drawing --test main examples` writes their pictures.

use std::path::{Path, PathBuf};

use pirn_definition::definition::{Loaded, SourceFile};
use pirn_drawing::{Drawing, draw, svg};

use crate::checks::{check, density, used_share};

pub(super) fn drawn(loaded: &Loaded) -> Drawing {
    let workflows: Vec<_> = loaded.workflows.iter().map(|one| &one.value).collect();
    let triggers: Vec<_> = loaded.triggers.iter().map(|one| &one.value).collect();
    draw(&workflows, &triggers)
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|end| end == "json") {
            out.push(path);
        }
    }
    out.sort();
}

/// Returns the name and the picture of each example.
fn examples() -> Vec<(String, Drawing)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    let mut out = Vec::new();
    for path in paths {
        let name = path
            .strip_prefix(&folder)
            .expect("below it")
            .to_string_lossy()
            .replace(['/', '\\'], "_");
        let text = std::fs::read_to_string(&path).expect("readable");
        let loaded = Loaded::of(&[SourceFile::new(&*name, text)]);
        if !loaded.workflows.is_empty() {
            out.push((name.replace(".json", ""), drawn(&loaded)));
        }
    }
    out
}

#[test]
fn pictures_of_examples_meet_all_rules_and_use_their_area() {
    let examples = examples();
    assert!(examples.len() >= 15, "{}", examples.len());
    for (name, drawing) in &examples {
        if let Some(folder) = std::env::var_os("PIRN_DRAW_TO") {
            let file = PathBuf::from(&folder).join(format!("{name}.svg"));
            std::fs::write(file, svg(drawing)).expect("writable");
            println!("{name}: {:.2} used, {:.2} boxes", used_share(drawing), density(drawing));
        }
        check(drawing);
        assert!(used_share(drawing) > 0.5, "{name}: {}", used_share(drawing));
    }
}

#[test]
fn a_fork_has_a_lane_for_each_path_and_a_trigger_a_dashed_edge() {
    let examples = examples();
    let (_, desk) = examples
        .iter()
        .find(|(name, _)| name == "support-desk_workflow")
        .expect("it is there");
    let lanes: Vec<&str> = desk.lanes.iter().map(|lane| lane.path_id.as_str()).collect();
    assert_eq!(lanes, ["policies", "customer", "amounts", "facts", "tone", "lawyer"]);
    let lane = desk.lanes[0].clone();
    assert_eq!(lane.fork, "support-desk/look-into-it");
    let triggered = desk
        .edges
        .iter()
        .find(|edge| edge.from == "trigger:conversation-too-long")
        .expect("an edge");
    assert_eq!(triggered.to, "shorten-conversation/start");
    assert!(svg(desk).contains("class=\"edge trigger\""));
}

#[test]
fn a_long_setting_is_wrapped_and_whole_in_the_tooltip() {
    let examples = examples();
    let (_, desk) = examples
        .iter()
        .find(|(name, _)| name == "support-desk_workflow")
        .expect("it is there");
    let join = desk
        .nodes
        .iter()
        .find(|node| node.id == "support-desk/reviewed")
        .expect("a node");
    let lines: Vec<&str> = join.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["reviewed", "JOIN SUCCESS_COUNT_THRESHOLD", "2 of 3, 30 s"]);
    assert_eq!(join.title, "reviewed\nJOIN SUCCESS_COUNT_THRESHOLD 2 of 3, 30 s");
}

#[test]
fn a_page_has_the_picture_and_its_notes_as_text() {
    let examples = examples();
    let page = pirn_drawing::html("a <title>", &examples[0].1, &["warning: <b>".to_owned()]);
    for part in ["<title>a &lt;title&gt;</title>", "<svg", "<li>warning: &lt;b&gt;</li>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    assert!(!pirn_drawing::html("", &examples[0].1, &[]).contains("<ul>"));
}
