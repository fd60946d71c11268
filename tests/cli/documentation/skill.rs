//! `pirn skill`, and `llms.txt`.

use std::fs;

use crate::command::{pirn, pirn_in, root};
use crate::folder::Folder;

/// Returns the blocks of code in this language.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let start = format!("```{language}\n");
    let blocks = page.split(&start).skip(1);
    blocks
        .map(|rest| rest.split_once("\n```").expect("a closed block").0)
        .collect()
}

#[test]
fn every_workflow_and_script_of_the_page_for_models_passes_the_check() {
    let page = pirn(&["skill"]);
    assert_eq!(page.code, Some(0), "{}", page.stderr);
    let [config] = blocks(&page.stdout, "toml")[..] else {
        panic!("one config file")
    };
    let folder = Folder::new("skill").with("pirn.toml", config);
    let files = ["json", "js"].map(|language| (language, blocks(&page.stdout, language)));
    for (language, blocks) in files {
        assert!(!blocks.is_empty(), "{language}");
        for (number, block) in blocks.into_iter().enumerate() {
            let name = format!("{number}.{language}");
            fs::write(folder.path().join(&name), block).expect("writable");
            let checked = pirn_in(folder.path(), &["check", &name], &[]);
            assert!(
                checked.code == Some(0) && checked.stdout.starts_with("valid: 0 errors, 0 warnings"),
                "{block}\n{}",
                checked.stdout
            );
        }
    }
}

#[test]
fn graphs_of_the_page_for_models_give_the_described_outputs_offline() {
    let page = pirn(&["skill"]).stdout;
    let folder = Folder::new("skill-runs").with("pirn.toml", "[[profiles]]\nid = \"assistant\"\nprovider = \"echo\"\n");
    for (place, input, more, output) in [
        (0, r#"{"question": "Why?"}"#, &[][..], "Answer in one sentence: Why?\n"),
        (
            2,
            r#"{"orders": [{"count": 1, "price": 9}]}"#,
            &[],
            "{\n  \"total\": 9,\n  \"paid\": true\n}\n",
        ),
        (
            2,
            r#"{"orders": [{"count": 9, "price": 200}]}"#,
            &["--answer", "ask=no"],
            "{\n  \"total\": 1800,\n  \"paid\": false\n}\n",
        ),
    ] {
        fs::write(folder.path().join("workflow.json"), blocks(&page, "json")[place]).expect("writable");
        let arguments = [&["run", "--quiet", "--virtual-time", "--input", input], more].concat();
        let ended = pirn_in(folder.path(), &arguments, &[]);
        assert_eq!((ended.code, &*ended.stdout), (Some(0), output), "{}", ended.stderr);
    }
}

#[test]
fn every_link_of_llms_txt_leads_to_a_file() {
    let text = fs::read_to_string(root().join("llms.txt")).expect("readable");
    let links: Vec<&str> = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        assert!(root().join(link).is_file(), "{link}");
    }
}
