//! The examples of the repository as pictures.

use std::path::{Path, PathBuf};

use pirn_definition::definition::{Loaded, SourceFile};
use pirn_drawing::{Drawing, draw, svg};

fn loaded(name: &str) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    let text = std::fs::read_to_string(path).expect("an example");
    Loaded::of(&[SourceFile::new(name, text)])
}

fn drawn(name: &str) -> Drawing {
    let loaded = loaded(name);
    let workflows: Vec<_> = loaded.workflows.iter().map(|one| &one.value).collect();
    let triggers: Vec<_> = loaded.triggers.iter().map(|one| &one.value).collect();
    draw(&workflows, &triggers)
}

/// Draws an example, or files named by `PIRN_DRAW`, into the folder `PIRN_DRAW_TO`.
#[test]
fn every_node_of_an_example_is_drawn_once() {
    let drawing = drawn("support-desk/workflow.json");
    let ids: Vec<&str> = drawing.nodes.iter().map(|node| node.id.as_str()).collect();
    assert!(ids.contains(&"support-desk/look-into-it"), "{ids:?}");
    assert!(ids.contains(&"trigger:conversation-too-long"), "{ids:?}");
    let picture = svg(&drawing);
    assert_eq!(picture.matches("<svg").count(), 1);
    if let Some(folder) = std::env::var_os("PIRN_DRAW_TO") {
        for name in std::env::var("PIRN_DRAW").expect("names of examples").split(' ') {
            let file = PathBuf::from(&folder).join(name.replace('/', "_").replace(".json", ".svg"));
            std::fs::write(file, svg(&drawn(name))).expect("writable");
        }
    }
}
