//! The folders of this crate form a hierarchy: no folder imports, through others, itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The folder, or the file beside them, that each `crate::` path in a file names.
fn imports(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|path| {
            path.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default()
        })
        .filter(|name| name.starts_with(char::is_lowercase))
}

fn read(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read(&path, found);
        } else {
            let source = fs::read_to_string(&path).expect("a source");
            found.extend(imports(&source).map(str::to_owned));
        }
    }
}

/// A cycle among the imports, if there is one.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let reached = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&String> = graph.get(from).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next.clone()) {
                open.extend(graph.get(next).into_iter().flatten());
            }
        }
        reached
    };
    let on_cycle: Vec<String> = graph
        .keys()
        .filter(|name| reached(name).contains(*name))
        .cloned()
        .collect();
    (!on_cycle.is_empty()).then_some(on_cycle)
}

#[test]
fn no_folder_imports_itself_through_others() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut graph = BTreeMap::new();
    for entry in fs::read_dir(&src).expect("the sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut found = BTreeSet::new();
        if path.is_dir() {
            read(&path, &mut found);
        } else if name != "lib" {
            found.extend(imports(&fs::read_to_string(&path).expect("a source")).map(str::to_owned));
        }
        found.remove(&name);
        graph.insert(name, found);
    }
    assert!(graph["graph"].contains("definition"), "imports are found");
    assert_eq!(cycle(&graph), None, "{graph:#?}");
}

#[test]
fn a_cycle_is_found() {
    let graph = [("a", ["b"]), ("b", ["c"]), ("c", ["b"])]
        .map(|(from, to)| (from.to_owned(), to.map(str::to_owned).into()))
        .into();
    assert_eq!(cycle(&graph), Some(vec!["b".to_owned(), "c".to_owned()]));
}
