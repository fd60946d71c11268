//! Every `.rs` file of the workspace is compiled: a target of Cargo names it, or a module of a compiled file declares it.
//!
//! The compiler never reads an orphan, so nothing else reports a file that a move left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::house::{metadata, workspace};

#[test]
fn every_source_file_is_a_target_or_declared_as_a_module() {
    let root = workspace().canonicalize().expect("the workspace");
    let packages = metadata()["packages"].as_array().expect("packages");
    let path = |value: &Value| {
        let path = Path::new(value.as_str().expect("a path"));
        path.canonicalize().expect("an existing file")
    };
    let manifests: BTreeSet<PathBuf> = packages.iter().map(|package| path(&package["manifest_path"])).collect();
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().expect("targets"));
    let roots = targets.map(|target| path(&target["src_path"])).collect();
    let orphans = orphans(&root, &manifests, roots);
    assert!(
        orphans.is_empty(),
        "no module declares these files and no target names them; declare or delete them:\n{}",
        orphans.join("\n")
    );
}

#[test]
fn an_orphan_is_reported_and_a_declared_module_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("the folder");
    let files = [
        ("Cargo.toml", ""),
        (
            "src/lib.rs",
            "mod a;\npub(crate) mod b;\n#[path = \"../shared/c.rs\"]\n#[cfg(test)]\npub mod renamed;\n// mod comment;",
        ),
        ("src/a.rs", "mod below;"),
        ("src/a/below.rs", ""),
        ("src/b/mod.rs", "mod below;\n"),
        ("src/b/below.rs", ""),
        ("shared/c.rs", ""),
        ("build.rs", ""),
        ("src/comment.rs", ""),
        ("src/below.rs", ""),
        ("src/b/left/mod.rs", "mod behind;"),
        ("src/b/left/behind.rs", ""),
        ("other/Cargo.toml", ""),
        ("other/src/lib.rs", ""),
        ("target/generated.rs", ""),
        (".hidden/file.rs", ""),
    ];
    for (name, text) in files {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("writable");
    }
    let manifests = BTreeSet::from([root.join("Cargo.toml")]);
    let targets = ["src/lib.rs", "build.rs"].map(|name| root.join(name)).to_vec();
    assert_eq!(
        orphans(&root, &manifests, targets),
        [
            "src/b/left/behind.rs",
            "src/b/left/mod.rs",
            "src/below.rs",
            "src/comment.rs"
        ]
    );
}

/// Returns the `.rs` files below `root` that no module declares, starting from `targets`. Packages without a manifest in
/// `manifests` are workspaces of their own and left out.
fn orphans(root: &Path, manifests: &BTreeSet<PathBuf>, targets: Vec<PathBuf>) -> Vec<String> {
    let targets_of_cargo: BTreeSet<PathBuf> = targets.iter().cloned().collect();
    let mut compiled = BTreeSet::new();
    let mut next = targets;
    while let Some(file) = next.pop() {
        if compiled.insert(file.clone()) {
            let is_root = targets_of_cargo.contains(&file);
            next.extend(
                declared(&file, is_root)
                    .iter()
                    .filter_map(|path| path.canonicalize().ok()),
            );
        }
    }
    let found = files(root, manifests);
    let name = |file: &PathBuf| file.strip_prefix(root).expect("below it").display().to_string();
    found.difference(&compiled).map(name).collect()
}

/// Returns the paths that each `mod name;` of a file can have. A file that is missing does not exist under all of them.
fn declared(file: &Path, is_root: bool) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(file).expect("a source file");
    let folder = file.parent().expect("a file is in a folder");
    let has_name_of_folder = is_root || file.file_name().is_some_and(|name| name == "mod.rs");
    let below = if has_name_of_folder {
        folder.to_owned()
    } else {
        file.with_extension("")
    };
    let mut paths = Vec::new();
    let mut given = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            given = path.strip_suffix("\"]").map(|path| folder.join(path));
        } else if let Some(name) = module(line) {
            match given.take() {
                Some(path) => paths.push(path),
                None => paths.extend([below.join(format!("{name}.rs")), below.join(name).join("mod.rs")]),
            }
        }
    }
    paths
}

/// Returns the name in `mod name;`, `pub mod name;` or `pub(crate) mod name;`.
fn module(line: &str) -> Option<&str> {
    let declaration = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    declaration.strip_prefix("mod ")?.strip_suffix(';')
}

/// Returns the `.rs` files below a folder, without those of builds and of packages outside the workspace.
fn files(root: &Path, manifests: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let manifest = folder.join("Cargo.toml");
        if manifest.exists() && !manifests.contains(&manifest) {
            continue;
        }
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_ours = !name.starts_with('.') && name != "target" && name != "node_modules";
            if path.is_dir() && is_ours {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path);
            }
        }
    }
    files
}
