//! Folders of skills and script files on disk, read with the workflow file that names them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pirn_definition::definition::{
    MAX_SKILL_BYTES, MAX_SKILL_FILES, SKILL_FILE, SourceFile, Unreadable, script_files, skill_folders,
};

use crate::config::read_text;

/// Maximum depth of folders within a skill.
const MAX_DEPTH: usize = 8;

/// Maximum size in bytes of a script file.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// Reads the folders of skills and the script files that a workflow file names, relative to the file, and returns the file with them. A
/// folder or file that cannot be read is a fault of the definition.
#[must_use]
pub fn with_skills(file: SourceFile, path: &Path) -> SourceFile {
    let file = with_scripts(file, path);
    let folders = skill_folders(&file.text);
    if folders.is_empty() {
        return file;
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let read = folders.into_iter().map(|folder| {
        let files = read_folder(&base.join(&folder));
        (folder, files.map_err(Unreadable))
    });
    file.with_skills(Arc::new(read.collect()))
}

fn with_scripts(file: SourceFile, path: &Path) -> SourceFile {
    let scripts = script_files(&file.text);
    if scripts.is_empty() {
        return file;
    }
    let base = path.parent().unwrap_or(Path::new(""));
    let read = scripts.into_iter().map(|script| {
        let text = read_script(&base.join(&script));
        (script, text.map_err(Unreadable))
    });
    file.with_scripts(Arc::new(read.collect()))
}

fn read_script(path: &Path) -> Result<String, String> {
    // Opening a pipe waits for a writer.
    if path.exists() && !path.is_file() {
        return Err(format!("cannot read {}: not a regular file", path.display()));
    }
    let text = fs::File::open(path).and_then(|file| read_text(file, MAX_SCRIPT_BYTES));
    text.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Returns the text files of a skill by their paths within its folder.
fn read_folder(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let shown = folder.display();
    let root = fs::canonicalize(folder).map_err(|error| format!("cannot read the folder {shown}: {error}"))?;
    if !root.join(SKILL_FILE).is_file() {
        return Err(format!("the folder {shown} contains no {SKILL_FILE}"));
    }
    let (mut files, mut bytes) = (BTreeMap::new(), 0);
    let mut open: Vec<(PathBuf, usize)> = vec![(root.clone(), 0)];
    while let Some((at, depth)) = open.pop() {
        let unreadable = |path: &Path, error: std::io::Error| format!("cannot read {}: {error}", path.display());
        let entries = fs::read_dir(&at).map_err(|error| unreadable(&at, error))?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        // Ordered, so that the same fault is reported on every machine.
        let paths = paths
            .collect::<Result<BTreeSet<_>, _>>()
            .map_err(|error| unreadable(&at, error))?;
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Folders of tools, such as `.git`.
            if name.starts_with('.') {
                continue;
            }
            // Resolves symbolic links: their targets must be in the folder too.
            let target = fs::canonicalize(&path).map_err(|error| unreadable(&path, error))?;
            if !target.starts_with(&root) {
                return Err(format!(
                    "{} is a symbolic link out of the folder: copy its target into the folder",
                    path.display()
                ));
            }
            if target.is_dir() {
                if path.is_symlink() || depth == MAX_DEPTH {
                    return Err(format!(
                        "{} is a link to a folder, or nested more than {MAX_DEPTH} deep: use plain folders",
                        path.display()
                    ));
                }
                open.push((path, depth + 1));
                continue;
            }
            // A pipe or device has no size, and reading it may never end.
            if !target.is_file() {
                return Err(format!("{} is not a regular file: remove it", path.display()));
            }
            let size = fs::metadata(&target).map_err(|error| unreadable(&path, error))?.len();
            bytes += usize::try_from(size).unwrap_or(usize::MAX).min(MAX_SKILL_BYTES + 1);
            if bytes > MAX_SKILL_BYTES || files.len() == MAX_SKILL_FILES {
                return Err(format!(
                    "the folder {shown} has more than {MAX_SKILL_FILES} files or {MAX_SKILL_BYTES} bytes: remove files that the \
                     instructions do not need"
                ));
            }
            let text = fs::read(&target).map_err(|error| unreadable(&path, error))?;
            // A model can read texts only: images and programs are left out.
            let Ok(text) = String::from_utf8(text) else { continue };
            let relative = path.strip_prefix(&root).unwrap_or(&path);
            let parts: Vec<String> = relative
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            files.insert(parts.join("/"), text);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "---\nname: pdf\ndescription: Reads.\n---\nBody";

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pirn-skills-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("skill/more")).expect("a folder");
        fs::write(folder.join("skill").join(SKILL_FILE), HEAD).expect("a file");
        folder
    }

    #[test]
    fn text_files_of_a_folder_are_read_and_hidden_and_binary_ones_are_not() {
        let base = folder("read");
        let skill = base.join("skill");
        fs::write(skill.join("more/a.md"), "A").expect("a file");
        fs::write(skill.join(".hidden"), "H").expect("a file");
        fs::write(skill.join("image.bin"), [0xff, 0xfe, 0x00]).expect("a file");
        let text = r#"{"id": "w", "nodes": [{"id": "a", "type": "LLM", "config": {"skills": ["skill", "none"]}}], "edges": []}"#;
        let file = with_skills(SourceFile::new("w.json", text), &base.join("w.json"));
        let skills = file.skills();
        let files = skills["skill"].as_ref().expect("is read");
        assert_eq!(files.keys().collect::<Vec<_>>(), ["SKILL.md", "more/a.md"]);
        assert!(
            skills["none"]
                .as_ref()
                .is_err_and(|why| why.to_string().contains("cannot read the folder"))
        );
        fs::remove_dir_all(base).expect("is removed");
    }

    #[test]
    fn a_folder_that_is_too_large_or_has_no_skill_file_is_refused() {
        let base = folder("large");
        fs::write(base.join("skill/big.txt"), "x".repeat(MAX_SKILL_BYTES)).expect("a file");
        assert!(read_folder(&base.join("skill")).is_err_and(|why| why.contains("more than 256 files")));
        assert!(read_folder(&base.join("skill/more")).is_err_and(|why| why.contains("contains no SKILL.md")));
        fs::remove_dir_all(base).expect("is removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_no_regular_file_is_refused() {
        let base = folder("socket");
        let path = base.join("skill/socket");
        let socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let refused = "not a regular file";
        assert!(read_folder(&base.join("skill")).is_err_and(|why| why.contains(refused)));
        assert!(read_script(&path).is_err_and(|why| why.contains(refused)));
        drop(socket);
        fs::remove_dir_all(base).expect("is removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_out_of_the_folder_is_refused() {
        let base = folder("link");
        fs::write(base.join("secret"), "S").expect("a file");
        std::os::unix::fs::symlink(base.join("skill/SKILL.md"), base.join("skill/inside.md")).expect("a link");
        assert!(read_folder(&base.join("skill")).is_ok_and(|files| files["inside.md"] == HEAD));
        std::os::unix::fs::symlink(base.join("secret"), base.join("skill/outside.md")).expect("a link");
        assert!(read_folder(&base.join("skill")).is_err_and(|why| why.contains("symbolic link out")));
        fs::remove_dir_all(base).expect("is removed");
    }
}
