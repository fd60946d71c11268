//! Packages and archives of a release.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the folders of the crates that are published, with the files that their sources include.
fn published() -> Vec<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
            "--locked",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    packages
        .iter()
        .filter(|package| package["publish"].is_null())
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
            let folder = manifest.parent().expect("a folder").to_owned();
            let included = included_files(&folder.join("src"));
            (folder, included)
        })
        .collect()
}

/// Returns the paths in `include_str!` and `include_bytes!` of all sources but tests, each with the file that includes it.
fn included_files(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            found.extend(included_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a text");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                for part in line
                    .split("include_str!(\"")
                    .chain(line.split("include_bytes!(\""))
                    .skip(1)
                {
                    let Some((name, _)) = part.split_once("\")") else {
                        continue;
                    };
                    let file = path.parent().expect("a folder").join(name);
                    if file.exists() {
                        found.push((path.clone(), file.canonicalize().expect("it exists")));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn every_file_that_a_published_crate_includes_is_in_its_package() {
    let crates = published();
    assert!(crates.len() > 10, "{crates:?}");
    let mut seen = 0;
    for (folder, included) in crates {
        let folder = folder.canonicalize().expect("it exists");
        for (source, file) in included {
            seen += 1;
            assert!(
                file.starts_with(&folder),
                "{} includes {}",
                source.display(),
                file.display()
            );
        }
    }
    assert!(seen > 10, "{seen} included files were found");
}

/// Folder of a release with checksums; its command prints a version.
struct Release {
    folder: tempfile::TempDir,
}

impl Release {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "name=pirn-9.9.9-testing-unknown-linux-gnu; mkdir $name
            printf '#!/bin/sh\\necho pirn 9.9.9\\n' >$name/pirn; chmod 755 $name/pirn
            tar -czf $name.tar.gz $name; sha256sum $name.tar.gz >SHA256SUMS";
        let done = Command::new("sh").args(["-euc", script]).current_dir(&folder).status();
        assert!(done.expect("sh runs").success());
        Self { folder }
    }

    fn install(&self, target: &str) -> Output {
        Command::new(root().join("release/install"))
            .arg(self.folder.path())
            .arg(self.folder.path().join("bin"))
            .env("PIRN_TARGET", target)
            .output()
            .expect("it runs")
    }

    /// Asserts that the installation fails with a message, and installs nothing.
    fn refuses(&self, target: &str, message: &str) {
        let output = self.install(target);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(message), "{output:?}");
        assert!(!self.is_installed());
    }

    fn is_installed(&self) -> bool {
        self.folder.path().join("bin/pirn").exists()
    }
}

#[test]
fn the_command_of_a_release_is_installed_from_its_folder() {
    let release = Release::new();
    let output = release.install("testing-unknown-linux-gnu");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("pirn 9.9.9"), "{output:?}");
    assert!(release.is_installed());
}

#[test]
fn an_archive_that_differs_from_its_checksum_is_not_installed() {
    let release = Release::new();
    let archive = release
        .folder
        .path()
        .join("pirn-9.9.9-testing-unknown-linux-gnu.tar.gz");
    let mut bytes = std::fs::read(&archive).expect("it exists");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&archive, bytes).expect("written");
    release.refuses("testing-unknown-linux-gnu", "differs from its checksum");
}

#[test]
fn a_target_without_an_archive_is_named() {
    let release = Release::new();
    release.refuses("other-unknown-linux-gnu", "no archive for other-unknown-linux-gnu");
}
