//! `docs/crates.svg`: the crates that are shipped, with their dependencies, from `cargo metadata`.
//!
//! `PIRN_WRITE_PICTURE=1 cargo test -p pirn-tests --test scenarios acceptance::source_tree::crates_picture` writes the pictures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::house::{metadata, workspace};

const BOX: (usize, usize) = (248, 74);
const GAP: (usize, usize) = (28, 62);
const MARGIN: usize = 20;

/// Maximum number of characters in a line of a description.
const LINE: usize = 40;

/// A crate, and the crates that it depends on.
struct Crate {
    about: String,
    below: BTreeSet<String>,
}

#[test]
fn the_picture_of_the_crates_is_what_cargo_metadata_says() {
    let svg = svg(&crates());
    let path = workspace().join("docs/crates.svg");
    if std::env::var_os("PIRN_WRITE_PICTURE").is_some() {
        std::fs::write(&path, &svg).expect("writable");
    }
    let stored = std::fs::read_to_string(&path).expect("the picture is there");
    assert!(
        stored == svg,
        "docs/crates.svg is out of date: PIRN_WRITE_PICTURE=1 writes it"
    );
}

/// Checks the picture of a run's actors, which is drawn by hand: each type in it is defined in the code.
#[test]
fn the_picture_of_a_run_names_types_of_the_code() {
    let svg = std::fs::read_to_string(workspace().join("docs/run.svg")).expect("the picture is there");
    let named = svg.split("class=\"type\"").skip(1);
    let named: BTreeSet<&str> = named.filter_map(|rest| rest.split(['>', '<']).nth(1)).collect();
    assert!(named.len() >= 6, "{named:?}");
    let mut code = String::new();
    for file in [
        "src",
        "definition/src",
        "conversation/src",
        "events/src",
        "core/src",
        "actors/src",
        "store/src",
    ]
    .iter()
    .flat_map(|root| super::house::sources(root))
    {
        code.push_str(&std::fs::read_to_string(file).expect("readable"));
    }
    for name in named {
        let is_defined = ["struct", "enum", "trait"].iter().any(|word| {
            [" {", "(", ";", "<", ":"]
                .iter()
                .any(|end| code.contains(&format!("{word} {name}{end}")))
        });
        assert!(is_defined, "there is no type {name}");
    }
}

fn crates() -> BTreeMap<String, Crate> {
    let metadata = metadata();
    let root = Path::new(metadata["workspace_root"].as_str().expect("a path"));
    let folder = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let folder = manifest.strip_prefix(root).expect("below the root").components().next();
        folder.map(|part| part.as_os_str().to_string_lossy().into_owned())
    };
    let is_shipped = |package: &&Value| {
        let folder = folder(package).unwrap_or_default();
        !["tests", "loom-tests", "benches", "examples"].contains(&folder.as_str())
    };
    let packages = metadata["packages"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(is_shipped);
    let packages: Vec<&Value> = packages.collect();
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let names: BTreeSet<String> = packages.iter().map(|package| name(package)).collect();
    let crate_of = |package: &&Value| {
        let dependencies = package["dependencies"].as_array().expect("a list").iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null()).map(name);
        let about = package["description"].as_str().unwrap_or_default().to_owned();
        let below = normal.filter(|name| names.contains(name)).collect();
        (name(package), Crate { about, below })
    };
    packages.iter().map(crate_of).collect()
}

/// Returns the level of each crate: one above the highest crate that it depends on.
fn levels(crates: &BTreeMap<String, Crate>) -> BTreeMap<&str, usize> {
    let mut levels: BTreeMap<&str, usize> = BTreeMap::new();
    while levels.len() < crates.len() {
        for (name, one) in crates {
            let below: Option<Vec<usize>> = one
                .below
                .iter()
                .map(|other| levels.get(other.as_str()).copied())
                .collect();
            if let Some(below) = below {
                levels.insert(name, below.into_iter().max().map_or(0, |highest| highest + 1));
            }
        }
    }
    levels
}

/// Returns the dependencies of a crate, without those that it also reaches through another dependency.
fn direct<'a>(crates: &'a BTreeMap<String, Crate>, name: &str) -> impl Iterator<Item = &'a str> {
    let below = &crates[name].below;
    let mut indirect = BTreeSet::new();
    let mut next: Vec<&String> = below.iter().flat_map(|other| &crates[other].below).collect();
    while let Some(other) = next.pop() {
        if indirect.insert(other) {
            next.extend(&crates[other].below);
        }
    }
    below
        .iter()
        .filter(move |other| !indirect.contains(other))
        .map(String::as_str)
}

fn svg(crates: &BTreeMap<String, Crate>) -> String {
    let levels = levels(crates);
    let highest = levels.values().copied().max().unwrap_or_default();
    let rows: Vec<Vec<&str>> = (0..=highest)
        .rev()
        .map(|level| {
            levels
                .iter()
                .filter(|(_, own)| **own == level)
                .map(|(name, _)| *name)
                .collect()
        })
        .collect();
    let widest = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = 2 * MARGIN + widest * (BOX.0 + GAP.0) - GAP.0;
    let height = 2 * MARGIN + rows.len() * (BOX.1 + GAP.1) - GAP.1;
    let mut at: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (row, names) in rows.iter().enumerate() {
        let free = (widest - names.len()) * (BOX.0 + GAP.0) / 2;
        for (column, name) in names.iter().enumerate() {
            let left = MARGIN + free + column * (BOX.0 + GAP.0);
            at.insert(name, (left, MARGIN + row * (BOX.1 + GAP.1)));
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<title>The crates of Pirn; arrows lead to dependencies</title>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0 L8 4 L0 8 z\" fill=\"#57606a\"/></marker></defs>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    // Writing to a string does not fail.
    let _written = draw(&mut svg, crates, &at);
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, crates: &BTreeMap<String, Crate>, at: &BTreeMap<&str, (usize, usize)>) -> std::fmt::Result {
    for (name, (left, top)) in at {
        let mut targets: Vec<&str> = direct(crates, name).collect();
        targets.sort_by_key(|target| at[target]);
        let count = targets.len();
        for (number, target) in targets.into_iter().enumerate() {
            // The starts of the arrows share the lower edge of the box.
            let from = left + BOX.0 * (number + 1) / (count + 1);
            let (to, below) = at[target];
            let to = (to + BOX.0 / 2 + from) / 2;
            let (first, last) = (at[target].0 + 12, at[target].0 + BOX.0 - 12);
            writeln!(
                svg,
                "<line x1=\"{from}\" y1=\"{}\" x2=\"{}\" y2=\"{below}\" stroke=\"#57606a\" marker-end=\"url(#tip)\"/>",
                top + BOX.1,
                to.clamp(first, last),
            )?;
        }
    }
    for (name, (left, top)) in at {
        let (width, height) = BOX;
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#f6f8fa\" stroke=\"#57606a\"/>"
        )?;
        let middle = left + width / 2;
        writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"15\" font-weight=\"bold\" fill=\"#1f2328\">{name}</text>",
            top + 21
        )?;
        for (number, line) in lines(&crates[*name].about).iter().enumerate() {
            writeln!(
                svg,
                "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#57606a\">{line}</text>",
                top + 38 + 14 * number
            )?;
        }
    }
    Ok(())
}

/// Breaks a description into lines, and escapes it.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = word.replace('&', "&amp;").replace('<', "&lt;");
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < LINE => {
                line.push(' ');
                line.push_str(&word);
            }
            _full => lines.push(word),
        }
    }
    lines
}
