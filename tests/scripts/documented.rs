//! Complete scripts in the documented form of Claude Code's workflows, with scripted models. They run unchanged, as files.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use pirn::store::MemoryStore;
use pirn::{Engine, Model, ModelCall, ModelReply, Role, RunError, RunErrorCode, RunReport, TokenUsage};
use pirn_tests::world::{line, node};
use serde_json::{Value, json};

use super::recovery::outcome_of;
use crate::durable::faults::failing_store::{Crash, Failing};

/// Replies to a prompt; `None` makes the call fail.
type Replies = fn(&str) -> Option<Value>;

#[derive(Clone)]
struct Scripted {
    replies: Replies,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Model for Scripted {
    fn call(&self, call: ModelCall) -> BoxFuture<'static, Result<ModelReply, RunError>> {
        let mut messages = call.request.messages.iter().rev();
        let prompt = messages.find(|message| message.role == Role::User);
        let prompt = prompt.map(|message| message.content.clone()).unwrap_or_default();
        self.prompts.lock().unwrap().push(prompt.clone());
        let reply = match (self.replies)(&prompt) {
            Some(Value::String(content)) => Ok(content),
            Some(value) => Ok(value.to_string()),
            None => Err(RunError::new(RunErrorCode::ModelError, "no answer")),
        };
        let reply = reply.map(|content| ModelReply {
            content,
            usage: TokenUsage::new(10, 5, 15),
            ..ModelReply::default()
        });
        std::future::ready(reply).boxed()
    }
}

fn engine(script: &str, model: &Scripted, store: impl pirn::store::Store) -> Engine {
    let summary = json!({ "variableName": "x", "expression": "input" });
    let engine = Engine::builder()
        .virtual_time(None)
        .store(store)
        .model("default", Arc::new(model.clone()))
        .file("script.js", script)
        .workflows(json!({ "workflows": [line("summarize", &[node("v", "VARIABLE", summary)])] }).to_string());
    engine.build().expect("the script has no faults")
}

/// Runs a script, once without interruption and then with processes that are killed at 12 moments. Returns its output and prompts.
#[track_caller]
fn plays(name: &str, script: &str, input: &Value, replies: Replies) -> (Value, Vec<String>) {
    let model = || Scripted {
        replies,
        prompts: Arc::default(),
    };
    let play = |store: &MemoryStore, crash: Crash, model: &Scripted| -> (Option<RunReport>, u64) {
        let failing = Failing::new(store.clone(), crash);
        let engine = engine(script, model, failing.clone());
        (outcome_of(&engine, name, input, store), failing.commits())
    };
    let first = model();
    let (whole, commits) = play(&MemoryStore::new(), Crash::Never, &first);
    let whole = whole.expect("ends");
    assert_eq!(whole.error, None);
    let prompts = first.prompts.lock().unwrap().clone();
    for moment in 0..12 {
        let (store, model) = (MemoryStore::new(), model());
        let crash = Crash::After(commits * moment / 12);
        let (before, _) = play(&store, crash, &model);
        let (after, _) = play(&store, Crash::Never, &model);
        let report = after.or(before).expect("ends in the end");
        assert_eq!(
            (report.status, &report.output),
            (whole.status, &whole.output),
            "{crash:?}"
        );
        assert_eq!(
            report.tokens.spent, whole.tokens.spent,
            "{crash:?}: tokens are counted once"
        );
        let asked = model.prompts.lock().unwrap().len();
        assert!(
            asked <= prompts.len() + 16,
            "{crash:?}: {asked} calls, {} without a crash",
            prompts.len()
        );
    }
    (whole.output, prompts)
}

#[test]
fn a_review_verifies_each_finding_with_three_agents() {
    fn replies(prompt: &str) -> Option<Value> {
        let finding = |title: &str, severity: &str| json!({"title": title, "file": "a.rs", "severity": severity});
        Some(match prompt {
            _ if prompt.starts_with("List the files") => json!({"files": ["a.rs", "b.rs"]}),
            _ if prompt.starts_with("Find errors") => {
                json!({"findings": [finding("off by one", "low"), finding("leak", "low")]})
            }
            _ if prompt.starts_with("Find security") => {
                json!({"findings": [finding("injection", "high"), finding("leak", "low")]})
            }
            _ if prompt.starts_with("Find missing") => return None,
            "Refuter 3: is \"leak\" in a.rs real?" => return None,
            _ if prompt.starts_with("Refuter") => json!({"isReal": !prompt.contains("off by one"), "reason": "r"}),
            _ => json!(format!("report of {} bytes", prompt.len())),
        })
    }
    let script = include_str!("documented/review-changes.js");
    let (output, prompts) = plays("review-changes", script, &json!({"base": "main"}), replies);
    assert_eq!(output["confirmed"], json!(["injection", "leak"]));
    assert_eq!(output["rejected"], 2);
    assert!(
        output["report"]
            .as_str()
            .is_some_and(|report| report.starts_with("report of")),
        "{output}"
    );
    assert_eq!(
        prompts.iter().filter(|prompt| prompt.starts_with("Refuter")).count(),
        12
    );
}

#[test]
fn a_search_ends_after_two_rounds_without_new_results() {
    fn replies(prompt: &str) -> Option<Value> {
        Some(match prompt {
            _ if prompt.starts_with("Round 1") => json!({"places": ["a:1", "b:2"]}),
            _ if prompt.starts_with("Round 2") && prompt.contains("by type") => json!({"places": ["c:3"]}),
            _ if prompt.starts_with("Round") => json!({"places": ["a:1"]}),
            _ => return None,
        })
    }
    let script = include_str!("documented/find-until-dry.js");
    let (output, prompts) = plays("find-until-dry", script, &json!("calls of f"), replies);
    assert_eq!(output["places"], json!({"a:1": 1, "b:2": 1, "c:3": 2}));
    assert_eq!(output["rounds"], 4);
    assert!(
        output["critique"]
            .as_str()
            .is_some_and(|text| text.starts_with("no answer")),
        "{output}"
    );
    assert_eq!(prompts.len(), 4 * 3 + 1);
}

#[test]
fn judges_choose_the_best_of_several_plans() {
    fn replies(prompt: &str) -> Value {
        match prompt {
            _ if prompt.starts_with("Draft") => json!(prompt.replace("Draft", "Plan")),
            _ if prompt.starts_with("Which") => {
                let first = prompt.split("\nB: ").next().unwrap_or_default();
                json!({"winner": if first.contains("least risk") { "A" } else { "B" }})
            }
            _ => json!(prompt.replace("Improve: ", "better ")),
        }
    }
    let script = include_str!("documented/judge-plans.js");
    let input = json!({"goal": "x", "angles": ["smallest change", "least risk", "fastest"]});
    let (output, _) = plays("judge-plans", script, &input, |prompt| Some(replies(prompt)));
    assert_eq!(
        output,
        json!({"angle": "least risk", "plan": "better Plan a plan for x: least risk"})
    );
}

#[test]
fn research_keeps_the_claims_that_their_sources_support() {
    fn replies(prompt: &str) -> Value {
        match prompt {
            _ if prompt.starts_with("Name angles") => json!({"angles": ["price", "taste"]}),
            _ if prompt.starts_with("Search") => {
                let claim = |text: &str, url: &str| json!({"text": text, "url": url});
                json!({"claims": [claim("tea is old", "https://a"), claim("tea is blue", "https://b")]})
            }
            _ if prompt.starts_with("Does") => json!({"says": prompt.contains("old")}),
            _ => json!(prompt),
        }
    }
    let script = include_str!("documented/deep-research.js");
    let (output, _) = plays("deep-research", script, &json!({"question": "tea?"}), |prompt| {
        Some(replies(prompt))
    });
    assert_eq!(
        (&output["sources"], &output["checked"]),
        (&json!(["[1] https://a"]), &json!(2))
    );
    assert!(
        output["answer"]
            .as_str()
            .is_some_and(|text| text.contains("- tea is old [1]")),
        "{output}"
    );
}

#[test]
fn a_migration_repairs_what_failed_and_calls_a_workflow() {
    fn replies(prompt: &str) -> Option<Value> {
        Some(match prompt {
            "Migrate b" => return None,
            "Migrate c" => json!({"ok": false, "error": "type"}),
            _ if prompt.starts_with("Migrate") => json!({"ok": true}),
            _ if prompt.starts_with("Repair b") && !prompt.ends_with('2') => return None,
            _ if prompt.starts_with("Repair b") => json!({"ok": true}),
            _ => json!({"ok": false}),
        })
    }
    let script = include_str!("documented/migrate-files.js");
    let (output, _) = plays("migrate-files", script, &json!({"files": ["a", "b", "c"]}), replies);
    let expected = json!({"migrated": 1, "repaired": [["b", true, 2], ["c", false, 3]]});
    assert_eq!(output, expected);
}
