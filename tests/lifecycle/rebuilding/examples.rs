//! The shipped examples, each ready to run without a person or a provider.

use std::path::Path;

use pirn::config::ConfigText;
use pirn::tools::ToolRegistry;
use pirn::{Engine, EngineBuilder, Message, RunBuilder};
use pirn_tests::world::long_conversation;
use serde_json::{Value, json};

/// An example: its name, an engine with its workflows, and its run.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    pub(crate) builder: EngineBuilder,
    pub(crate) run: Box<dyn FnOnce(&Engine) -> RunBuilder>,
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// The text of a shipped file.
fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect("the example is there")
}

fn json_of(name: &str) -> Value {
    serde_json::from_str(&text(name)).expect("it is JSON")
}

/// The first workflow of some files, with a config file of the examples.
fn example(name: &'static str, files: &[&str], config: Option<&str>, input: Value, said: Vec<Message>) -> Example {
    let mut builder = Engine::builder().virtual_time(Some(3));
    if let Some(config) = config {
        let config = ConfigText::read(folder().join(config)).expect("it is there");
        let mut tools = ToolRegistry::new();
        tools.configure(config.tools().expect("tools"));
        builder = builder.profiles(config.profiles().expect("profiles")).tools(tools);
    }
    for file in files {
        builder = builder.workflows(text(file));
    }
    let first = json_of(files[0]);
    let id = first.pointer("/workflows/0/id").or_else(|| first.get("id"));
    let id = id.and_then(Value::as_str).expect("it has an id").to_owned();
    Example {
        name,
        builder,
        run: Box::new(move |engine| engine.run(id).input(input).conversation(said)),
    }
}

/// The support desk: its tools, its pinned context, and a conversation that is compressed.
pub(crate) fn support_desk() -> Example {
    let said: Vec<Message> = serde_json::from_value(json_of("support-desk/conversation.json")).expect("messages");
    let ticket = json_of("support-desk/ticket.json");
    let desk = example(
        "support-desk",
        &["support-desk/workflow.json"],
        Some("support-desk/pirn.toml"),
        ticket,
        said,
    );
    let run = desk.run;
    let pinned = json_of("support-desk/pinned.json");
    Example {
        run: Box::new(move |engine| run(engine).pinned(serde_json::from_value(pinned).expect("sections"))),
        ..desk
    }
}

/// Two people who approve.
fn approval() -> Example {
    let order = json!({"supplier": "Loom & Sons", "amount": 1_200});
    let asks = example("approval", &["approval/workflow.json"], None, order, Vec::new());
    let run = asks.run;
    Example {
        run: Box::new(move |engine| run(engine).answers(|_| Some(json!("approve")), |_, refused| panic!("{refused}"))),
        ..asks
    }
}

/// Examples of one file and an input.
const ALONE: [(&str, &str, &str); 10] = [
    ("topic-of", "topic-of.json", r#"{"ticket": "Where is it?"}"#),
    (
        "nightly",
        "nightly.json",
        r#"{"scheduledAt": "2026-03-13T03:00:00+01:00"}"#,
    ),
    ("refine", "refine.json", r#""the weaving room is closed""#),
    ("research", "research.json", r#"{"question": "Who invented the loom?"}"#),
    ("service", "service/workflows.json", r#"{"name": "Ada"}"#),
    ("tutorial 0", "tutorial/0-first.json", "{}"),
    ("tutorial 1", "tutorial/1-model.json", "{}"),
    ("tutorial 2", "tutorial/2-route.json", "{}"),
    ("tutorial 3", "tutorial/3-fork.json", "{}"),
    ("tutorial 4", "tutorial/4-compress.json", "{}"),
];

/// Every example but the support desk.
pub(crate) fn all() -> Vec<Example> {
    let alone = ALONE.iter().map(|(name, file, input)| {
        let input = serde_json::from_str(input).expect("it is JSON");
        example(name, &[file], None, input, Vec::new())
    });
    let mut all: Vec<Example> = alone.collect();
    all.push(approval());
    all.push(example(
        "support-fork",
        &["support-fork.json", "topic-of.json"],
        None,
        json!({"ticket": "Never! My refund!"}),
        Vec::new(),
    ));
    let compressions: [(&str, [&str; 3]); 2] = [
        (
            "compression-002",
            [
                "compression-002/main.json",
                "compression-002/002-compression-workflow.json",
                "compression-002/002-trigger.json",
            ],
        ),
        (
            "compression-003",
            [
                "compression-003/main.json",
                "compression-003/003-compression-workflow.json",
                "compression-003/003-trigger.json",
            ],
        ),
    ];
    all.extend(compressions.map(|(name, files)| example(name, &files, None, json!({}), long_conversation())));
    all
}
