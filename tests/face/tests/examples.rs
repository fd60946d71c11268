//! The workflows of `examples/` built with the Rust builder: each equals the definition in its file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pirn::serde_json::{Value, from_str, json};
use pirn::workflow::{
    Ask, Assign, Back, Code, Context, Join, JoinWhen, Llm, Loop, LoopLimit, MapItems, Subgraph, ToolRoundLimit,
    VariableType, Wait, triggered, workflow,
};
use pirn::{
    CodeModeLimits, DynamicConfig, DynamicConsent, DynamicForm, DynamicLimits, EventType, ExecuteTriggeredSubgraph,
    Role, ScheduleDefinition, TriggerAction, TriggerDefinition, TriggerInput, WorkflowDefinition,
};

/// A file of `examples/` with its workflows and its triggers outside of workflows.
type Written = (&'static str, Vec<WorkflowDefinition>, Vec<TriggerDefinition>);

fn examples() -> Vec<Written> {
    vec![
        ("tutorial/0-first.json", vec![first()], vec![]),
        ("tutorial/1-model.json", vec![model()], vec![]),
        ("tutorial/2-route.json", vec![route()], vec![]),
        ("tutorial/3-fork.json", vec![fork()], vec![]),
        ("tutorial/4-compress.json", vec![compress(), shorten()], vec![]),
        ("support-fork.json", vec![review()], vec![]),
        ("topic-of.json", vec![topic_of()], vec![]),
        ("research.json", vec![research(), source()], vec![]),
        ("steering/workflow.json", vec![report()], vec![]),
        ("refine.json", vec![refine()], vec![]),
        ("dynamic/dynamic.json", vec![planner(), length()], vec![]),
        ("dynamic/real.json", vec![real_planner()], vec![]),
        ("dynamic/code.json", vec![accountant(), expenses()], vec![]),
        ("nightly.json", vec![digest(), three_days()], vec![nightly()]),
        ("approval/workflow.json", vec![approval()], vec![]),
        ("compression-002/main.json", vec![long_talk()], vec![]),
        (
            "compression-002/002-compression-workflow.json",
            vec![seed_002()],
            vec![],
        ),
        ("compression-002/002-trigger.json", vec![], vec![seed_002_trigger()]),
        ("compression-003/main.json", vec![longer_talk()], vec![]),
        (
            "compression-003/003-compression-workflow.json",
            vec![seed_003()],
            vec![],
        ),
        ("compression-003/003-trigger.json", vec![], vec![seed_003_trigger()]),
        ("service/workflows.json", vec![greet(), order(), chat()], vec![]),
        (
            "support-desk/workflow.json",
            vec![support_desk(), shorten_conversation()],
            vec![too_long()],
        ),
    ]
}

fn first() -> WorkflowDefinition {
    workflow("first", "start", |flow, start| {
        let greet = flow.then(start, "greet", Code::js("return 'Hello, ' + input + '!'"));
        let end = flow.end("end");
        flow.edge(greet, end);
    })
}

/// Lets submitted workflows have agents with the profile `worker`, two at a time.
fn worked_by_two(agents: u64, time_ms: u64) -> DynamicConfig {
    DynamicConfig {
        profiles: Some(vec!["worker".to_owned()]),
        limits: DynamicLimits {
            agents: Some(agents),
            concurrency: Some(2),
            time_ms: Some(time_ms),
            ..DynamicLimits::default()
        },
        ..DynamicConfig::default()
    }
}

fn planner() -> WorkflowDefinition {
    workflow("planner", "start", |flow, start| {
        let rules = DynamicConfig {
            tools: Some(vec!["workflow:length".to_owned()]),
            ..worked_by_two(5, 120_000)
        };
        let prompt = "Compare {{input}}. Write a workflow of several agents for it, run it with run_workflow, and answer with its \
                      result.";
        let plan = Llm::prompt(prompt).profile_id("planner").dynamic(rules);
        let plan = flow.then(start, "plan", plan.tools(["run_workflow", "workflow:length"]));
        let end = flow.end_with("end", "output.content");
        flow.edge(plan, end);
    })
}

fn real_planner() -> WorkflowDefinition {
    workflow("real-planner", "start", |flow, start| {
        flow.input_schema(json!({"type": "string"}).as_object().cloned().unwrap_or_default());
        let rules = DynamicConfig {
            allow: Some(vec![DynamicForm::Script]),
            consent: Some(DynamicConsent::Auto),
            ..worked_by_two(8, 600_000)
        };
        let plan = Llm::prompt("{{input}}").profile_id("planner").dynamic(rules);
        let plan = plan.max_tool_rounds(2_u32).on_limit(ToolRoundLimit::Answer);
        let plan = flow.then(start, "plan", plan.tools(["run_workflow"]));
        let end = flow.end_with("end", "output.content");
        flow.edge(plan, end);
    })
}

fn length() -> WorkflowDefinition {
    workflow("length", "start", |flow, start| {
        flow.description("Counts the characters of a text.");
        let schema = json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}});
        flow.input_schema(schema.as_object().cloned().unwrap_or_default());
        let end = flow.end_with("end", "input.text.length");
        flow.edge(start, end);
    })
}

fn accountant() -> WorkflowDefinition {
    workflow("accountant", "start", |flow, start| {
        let limits = CodeModeLimits {
            calls: 50,
            ..CodeModeLimits::default()
        };
        let ask = Llm::prompt("Which month of {{input}} was the most expensive?").profile_id("accountant");
        let ask = ask.code_limits(limits).tools(["run_code", "workflow:expenses"]);
        let ask = flow.then(start, "ask", ask);
        let end = flow.end_with("end", "output.content");
        flow.edge(ask, end);
    })
}

fn expenses() -> WorkflowDefinition {
    workflow("expenses", "start", |flow, start| {
        flow.description("Lists the expenses of a month.");
        let schema = json!({"type": "object", "required": ["month"], "properties": {"month": {"type": "integer"}}});
        flow.input_schema(schema.as_object().cloned().unwrap_or_default());
        let list = "Array.from({ length: 200 }, (_, i) => ({ day: i % 28 + 1, amount: (i * input.month) % 7 }))";
        let end = flow.end_with("end", list);
        flow.edge(start, end);
    })
}

fn model() -> WorkflowDefinition {
    workflow("model", "start", |flow, start| {
        let greet = flow.then(start, "greet", Llm::prompt("Greet {{input}}.").profile_id("assistant"));
        let end = flow.end_with("end", "nodes.greet.content");
        flow.edge(greet, end);
    })
}

fn route() -> WorkflowDefinition {
    workflow("route", "start", |flow, start| {
        let says = |prompt: &str| Llm::prompt(prompt).profile_id("assistant");
        let mood = flow.then(start, "mood", says("One word, happy or angry: {{input}}"));
        let which = flow.route("which");
        flow.edge(mood, which);
        let apologize = flow.node("apologize", says("Apologize."));
        let thank = flow.node("thank", says("Thank them."));
        flow.when(which, "nodes.mood.content == 'angry'", apologize);
        flow.otherwise(which, thank);
        let end = flow.end_with("end", "output.content");
        flow.edge(apologize, end);
        flow.edge(thank, end);
    })
}

fn fork() -> WorkflowDefinition {
    workflow("fork", "start", |flow, start| {
        let mut both = flow.fork("ask-both");
        flow.edge(start, &both);
        let asks = |who: &str| Llm::prompt("What is {{input}}?").profile_id(who);
        let fast = flow.node("fast", asks("fast"));
        let thorough = flow.node("thorough", asks("thorough"));
        flow.path(&mut both, "fast", fast);
        flow.path(&mut both, "thorough", thorough);
        let answer = flow.join("first-answer", both, JoinWhen::AnyCompleted);
        flow.edge(fast, answer);
        flow.edge(thorough, answer);
        let output = "({ from: output.completed[0], answer: output.outputs[output.completed[0]].content })";
        let end = flow.end_with("end", output);
        flow.edge(answer, end);
    })
}

fn compress() -> WorkflowDefinition {
    workflow("compress", "start", |flow, start| {
        flow.config().token_limit = Some(120);
        let so_far = [
            (Role::System, "You help {{input}}."),
            (
                Role::User,
                "My parcel went to Bergen by way of Leipzig, where it lay for five days because the manifest was wrong.",
            ),
            (
                Role::Assistant,
                "I see. Five days in Leipzig count in full, so there is a voucher of ten per cent of what you paid.",
            ),
            (
                Role::User,
                "The bowl in it was broken when it arrived, and the carton had been opened and closed again with tape.",
            ),
            (
                Role::Assistant,
                "Then customs opened it. You may choose between a new bowl and your money back, and keep the rest.",
            ),
        ];
        let so_far = flow.then(start, "so-far", Context::insert(so_far));
        let ask = flow.then(
            so_far,
            "ask",
            Llm::prompt("A new bowl, please.").profile_id("assistant"),
        );
        let end = flow.end_with("end", "nodes.ask.content");
        flow.edge(ask, end);
        let shorten = ExecuteTriggeredSubgraph::of("shorten");
        let shorten = TriggerAction::ExecuteTriggeredSubgraph(shorten);
        flow.trigger(TriggerDefinition::on(
            "too-long",
            EventType::TokenLimitExceeded,
            shorten,
        ));
    })
}

fn shorten() -> WorkflowDefinition {
    triggered("shorten", "begin", |flow, begin| {
        let parameters = [("profileId", json!("summarizer")), ("keepRecent", json!(1))];
        let summary = flow.then(begin, "summarize", Context::compress("summarize", parameters));
        let back = flow.back("back", Back::new());
        flow.edge(summary, back);
    })
}

fn review() -> WorkflowDefinition {
    workflow("review", "start", |flow, start| {
        flow.name("Review a ticket on two paths and join");
        flow.variable("threshold", 10).variable_type = Some(VariableType::Number);
        let words = Assign::to("words", "input.ticket.split(' ').length").variable_type(VariableType::Number);
        let measure = flow.then(start, "measure", words);
        let mut fork = flow.fork("fork");
        flow.edge(measure, &fork);
        let mood = "return /[!]|angry|never/i.test(input.ticket) ? 'upset' : 'calm';";
        let tone = flow.node("tone", Code::js(mood));
        let topic = flow.node("topic", Subgraph::of("topic-of").input("input"));
        flow.path(&mut fork, "tone", tone);
        flow.path(&mut fork, "topic", topic);
        let all = Join::when(JoinWhen::AllCompleted).timeout(Duration::from_secs(10));
        let join = flow.join("join", fork, all);
        flow.edge(tone, join);
        flow.edge(topic, join);
        let which = flow.route("route");
        flow.edge(join, which);
        let escalate = Llm::prompt("Escalate {{nodes.join.outputs.topic}}: {{input.ticket}}");
        let escalate = flow.node("escalate", escalate);
        let reply = flow.node("reply", Llm::prompt("Reply about {{nodes.join.outputs.topic}}"));
        let upset = "output.outputs.tone === 'upset' || words > threshold";
        flow.when(which, upset, escalate).priority(1.0);
        flow.otherwise(which, reply);
        let output = "({ tone: nodes.join.outputs.tone, topic: nodes.join.outputs.topic, text: output.content })";
        let end = flow.end_with("end", output);
        flow.edge(escalate, end);
        flow.edge(reply, end);
    })
}

fn topic_of() -> WorkflowDefinition {
    workflow("topic-of", "start", |flow, start| {
        let pick = "const t = input.ticket.toLowerCase(); \
                    return ['refund', 'login', 'delivery'].find(w => t.includes(w)) ?? 'other';";
        let pick = flow.then(start, "pick", Code::js(pick));
        let end = flow.end("end");
        flow.edge(pick, end);
    })
}

fn digest() -> WorkflowDefinition {
    workflow("digest", "start", |flow, start| {
        flow.name("What came in since yesterday, in a sentence");
        let prompt = "A digest of the day before {{input.scheduledAt}}, in one sentence.";
        let write = flow.then(start, "write", Llm::prompt(prompt).profile_id("writer"));
        let end = flow.end_with("end", "output.content");
        flow.edge(write, end);
    })
}

fn three_days() -> WorkflowDefinition {
    workflow("three-days", "start", |flow, start| {
        flow.name("Nothing, for three days: under virtual time the nights pass meanwhile");
        let wait = flow.then(start, "wait", Wait::time(Duration::from_hours(72)));
        let end = flow.end_with("end", "'three nights later'");
        flow.edge(wait, end);
    })
}

fn nightly() -> TriggerDefinition {
    let schedule = ScheduleDefinition::cron("0 3 * * *").timezone("Europe/Berlin");
    TriggerDefinition::scheduled("nightly", schedule, "digest")
}

fn research() -> WorkflowDefinition {
    workflow("research", "start", |flow, start| {
        flow.name("Ask many sources, take the first three answers, stop the rest");
        let look_up = MapItems::of("input.sources", "source")
            .item_name("source")
            .input("({ source, question: input.question })")
            .when(JoinWhen::AtLeast(3))
            .timeout(Duration::from_secs(30));
        let look_up = flow.then(start, "look-up", look_up);
        let write = "Answer \"{{input.question}}\" from these notes: {{json nodes.look-up.results}}";
        let write = flow.then(look_up, "write", Llm::prompt(write).profile_id("writer"));
        let output = "({ answer: output.content, from: nodes['look-up'].completed.map(at => input.sources[at]), \
                      failed: nodes['look-up'].failed.map(one => input.sources[one.index]), \
                      stopped: nodes['look-up'].cancelled.map(at => input.sources[at]) })";
        let end = flow.end_with("end", output);
        flow.edge(write, end);
    })
}

fn report() -> WorkflowDefinition {
    workflow("report", "start", |flow, start| {
        flow.name("Writes a report, and takes messages while it writes");
        let write = Llm::prompt("Write a report about {{input.subject}}.").profile_id("writer");
        let write = flow.then(start, "write", write);
        let end = flow.end_with("end", "output.content");
        flow.edge(write, end);
    })
}

fn source() -> WorkflowDefinition {
    workflow("source", "start", |flow, start| {
        let read = Llm::prompt("{{input.source}}: {{input.question}}").profile_id("reader");
        let read = flow.then(start, "read", read);
        let end = flow.end_with("end", "({ source: input.source, note: output.content })");
        flow.edge(read, end);
    })
}

fn refine() -> WorkflowDefinition {
    workflow("refine", "start", |flow, start| {
        flow.name("Write, have it judged, and write again until the judge is content");
        flow.variable("draft", "");
        flow.variable("verdict", "");
        let again = flow.loop_start("again", Loop::counting("drafts").at_most(5, LoopLimit::Finish));
        flow.edge(start, &again);
        let write = "{{#if loop.first}}Write a notice: {{input}}{{else}}Write it again. {{verdict}}{{/if}}";
        let write = flow.then(&again, "write", Llm::prompt(write).profile_id("writer"));
        let keep = flow.then(write, "keep", Assign::to("draft", "output.content"));
        let judge = Llm::prompt("Judge this notice, OK or what is wrong: {{draft}}").profile_id("judge");
        let judge = flow.then(keep, "judge", judge);
        let say = flow.then(judge, "say", Assign::to("verdict", "output.content"));
        let content = flow.loop_until("content", again, "verdict == 'OK'");
        flow.edge(say, content);
        let end = flow.end_with("end", "({ draft, verdict })");
        flow.edge(content, end);
    })
}

fn approval() -> WorkflowDefinition {
    workflow("approval", "start", |flow, start| {
        flow.name("Two people approve an order, in either order");
        let mut both = flow.fork("both");
        flow.edge(start, &both);
        let asks = |question: &str, who: &str| Ask::question(question).choices(["approve", "reject"]).assignee(who);
        let pay = asks("Finance: pay {{input.amount}} EUR to {{input.supplier}}?", "finance");
        let finance = flow.ask("finance", pay);
        let sign = asks("Legal: sign the contract with {{input.supplier}}?", "legal");
        let legal = flow.ask("legal", sign);
        flow.path(&mut both, "finance", finance);
        flow.path(&mut both, "legal", legal);
        let answers = flow.join("answers", both, JoinWhen::AllCompleted);
        flow.edge(finance, answers);
        flow.edge(legal, answers);
        let which = flow.route("which");
        flow.edge(answers, which);
        let ordered = flow.end_with("ordered", "input.supplier + ': ordered'");
        let rejected = flow.end_with("rejected", "input.supplier + ': rejected'");
        let approved = "output.outputs.finance.answer == 'approve' && output.outputs.legal.answer == 'approve'";
        flow.when(which, approved, ordered);
        flow.otherwise(which, rejected);
    })
}

const FIRST: &str = "My parcel with order number 4711 was to come on Monday. It is Thursday now, the tracking page has \
                     not changed since Saturday, and nobody answers the phone. What happens next?";
const SECOND: &str = "I have also been charged twice, once on the third and once on the fifth. Please say which of the \
                      two charges will be returned, and when it will be on my account.";
const THIRD: &str = "Thank you. One last thing: send the confirmation to my new address.";

fn long_talk() -> WorkflowDefinition {
    workflow("long-talk", "start", |flow, start| {
        flow.name("A talk that outgrows its token limit");
        flow.config().token_limit = Some(160);
        let first = flow.then(start, "first", Llm::prompt(FIRST));
        let second = flow.then(first, "second", Llm::prompt(SECOND));
        let third = flow.then(second, "third", Llm::prompt(THIRD));
        let end = flow.end_with("end", "output.content");
        flow.edge(third, end);
    })
}

fn longer_talk() -> WorkflowDefinition {
    workflow("long-talk", "start", |flow, start| {
        flow.name("A talk that outgrows its token limit");
        flow.config().token_limit = Some(160);
        flow.config().compression = Some(pirn::workflow::Compression {
            strategy: Some("keep_recent".to_owned()),
            parameters: [("count".to_owned(), json!(2))].into_iter().collect(),
            ..pirn::workflow::Compression::default()
        });
        let first = flow.then(start, "first", Llm::prompt(FIRST));
        let second = flow.then(first, "second", Llm::prompt(SECOND));
        let third = flow.then(second, "third", Llm::prompt(THIRD));
        let pause = flow.then(third, "pause", Wait::time(Duration::from_millis(300)));
        let fourth = flow.then(pause, "fourth", Llm::prompt("That was all."));
        let end = flow.end_with("end", "output.content");
        flow.edge(fourth, end);
    })
}

fn seed_002() -> WorkflowDefinition {
    triggered("context-compression-workflow", "start-from-trigger", |flow, start| {
        flow.name("上下文压缩工作流");
        let context = flow.then(start, "get-context", Assign::to("compressionContext", "input"));
        let prompt = Llm::prompt("请将以下对话历史压缩为简洁摘要...").profile_id("compression-profile");
        let compress = flow.then(context, "compress-messages", prompt);
        let replace = Context::replace_all(Role::User, "{{compress-messages.content}}");
        let update = flow.then(compress, "update-conversation", replace);
        let back = flow.back("continue-from-trigger", Back::new());
        flow.edge(update, back);
    })
}

fn seed_002_trigger() -> TriggerDefinition {
    let execute = ExecuteTriggeredSubgraph::of("context-compression-workflow");
    let action = TriggerAction::ExecuteTriggeredSubgraph(execute);
    TriggerDefinition {
        name: Some("上下文压缩触发器".to_owned()),
        ..TriggerDefinition::on("compression-trigger", EventType::TokenLimitExceeded, action)
    }
}

fn seed_003() -> WorkflowDefinition {
    workflow("compression-workflow", "start", |flow, start| {
        flow.name("上下文压缩工作流");
        let context = flow.then(start, "get-context", Assign::to("compressionContext", "input"));
        let code = "\n          const { messages, markMap, compressionConfig } = compressionContext;\n          \
                    // 执行压缩逻辑\n          return compressMessages(messages, markMap, compressionConfig);\n        ";
        let compress = flow.then(context, "compress", Code::js(code));
        let end = flow.end_with("end", "result");
        flow.edge(compress, end);
    })
}

fn seed_003_trigger() -> TriggerDefinition {
    let action = TriggerAction::StartWorkflow {
        workflow_id: "compression-workflow".to_owned(),
        input: Some(TriggerInput {
            source: "event".to_owned(),
            fields: ["threadId", "workflowId", "tokensUsed", "tokenLimit"]
                .map(str::to_owned)
                .to_vec(),
        }),
    };
    TriggerDefinition {
        name: Some("上下文压缩触发器".to_owned()),
        ..TriggerDefinition::on("compression-trigger", EventType::TokenLimitExceeded, action)
    }
}

fn greet() -> WorkflowDefinition {
    workflow("greet", "start", |flow, start| {
        flow.name("Greet").description("Greets whoever is named.");
        let schema = json!({"type": "object", "required": ["name"],
            "properties": {"name": {"type": "string", "description": "Who is greeted"}}});
        flow.input_schema(schema.as_object().cloned().unwrap_or_default());
        let greeting = Assign::to("greeting", "'Hello, ' + input.name + '!'");
        let greeting = flow.then(start, "greeting", greeting);
        let end = flow.end_with("end", "greeting");
        flow.edge(greeting, end);
    })
}

fn order() -> WorkflowDefinition {
    workflow("order", "start", |flow, start| {
        flow.name("Order").description("Waits until an order is paid.");
        let payment = flow.then(start, "payment", Wait::event("paid"));
        let end = flow.end_with("end", "{ paid: output.data.amount }");
        flow.edge(payment, end);
    })
}

fn chat() -> WorkflowDefinition {
    workflow("chat", "start", |flow, start| {
        flow.name("Chat").description("Answers a message.");
        let answer = flow.then(start, "answer", Llm::prompt("{{input.message}}"));
        let end = flow.end_with("end", "nodes['answer'].content");
        flow.edge(answer, end);
    })
}

fn support_desk() -> WorkflowDefinition {
    workflow("support-desk", "start", |flow, start| {
        flow.name("A ticket late in a long shift");
        flow.config().token_limit = Some(19_600);
        let assistant = |prompt: &str| Llm::prompt(prompt).profile_id("assistant");
        let read = "New ticket from {{input.customer}}, order {{input.order}}, parcel {{input.tracking}}: \
                    \"{{input.text}}\" What happened?";
        let read = assistant(read).tools(["get_order", "track_parcel"]);
        let read = flow.then(start, "read", read);

        let mut look = flow.fork("look-into-it");
        flow.edge(read, &look);
        let policies = assistant("Which policies apply to this ticket, and what do they give the customer?");
        let policies = flow.node("policies", policies.tools(["read_policy"]));
        let customer = assistant("What do we know about {{input.customer}} from earlier today?");
        let customer = flow.node("customer", customer);
        let amounts = "const goods = 429.00 + 54.00; return { voucher: Math.min(50, goods * 0.1).toFixed(2) + ' EUR', \
                       backAtTheDoor: '412.00 NOK', fullRefund: '616.13 EUR', needsApproval: 616.13 > 250 };";
        let amounts = flow.node("amounts", Code::js(amounts));
        let paths = [("policies", policies), ("customer", customer), ("amounts", amounts)];
        for (id, child) in paths {
            flow.path(&mut look, id, child);
        }
        let within = Duration::from_secs(30);
        let looked = flow.join("looked", look, Join::when(JoinWhen::AllCompleted).timeout(within));
        for (_, child) in paths {
            flow.edge(child, looked);
        }

        let write = "Write the answer to {{input.customer}}. Policies: {{nodes.looked.outputs.policies.content}} \
                     The customer: {{nodes.looked.outputs.customer.content}} Amounts: {{json nodes.looked.outputs.amounts}}";
        let write = flow.then(looked, "write", Llm::prompt(write).profile_id("writer"));

        let mut review = flow.fork("review");
        flow.edge(write, &review);
        let facts = flow.node(
            "facts",
            assistant("Check the facts in this answer: {{nodes.write.content}}"),
        );
        let tone = flow.node(
            "tone",
            assistant("Check the tone of this answer: {{nodes.write.content}}"),
        );
        let lawyer = "Check every sentence of this answer for what a lawyer might object to: {{nodes.write.content}}";
        let lawyer = flow.node("lawyer", assistant(lawyer));
        let paths = [("facts", facts), ("tone", tone), ("lawyer", lawyer)];
        for (id, child) in paths {
            flow.path(&mut review, id, child);
        }
        let reviewed = flow.join("reviewed", review, Join::when(JoinWhen::AtLeast(2)).timeout(within));
        for (_, child) in paths {
            flow.edge(child, reviewed);
        }
        let output = "({ answer: nodes.write.content, found: nodes.looked.outputs, reviews: nodes.reviewed.outputs, \
                      notAwaited: nodes.reviewed.cancelled })";
        let end = flow.end_with("end", output);
        flow.edge(reviewed, end);
    })
}

fn shorten_conversation() -> WorkflowDefinition {
    triggered("shorten-conversation", "start", |flow, start| {
        flow.name("What the trigger starts");
        let parameters = [("profileId", json!("summarizer")), ("keepRecent", json!(12))];
        let summary = flow.then(start, "summarize", Context::compress("summarize", parameters));
        let back = flow.back("back", Back::new());
        flow.edge(summary, back);
    })
}

fn too_long() -> TriggerDefinition {
    let execute = ExecuteTriggeredSubgraph {
        timeout: 1800.0,
        ..ExecuteTriggeredSubgraph::of("shorten-conversation")
    };
    let action = TriggerAction::ExecuteTriggeredSubgraph(execute);
    TriggerDefinition::on("conversation-too-long", EventType::TokenLimitExceeded, action)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("the file is there");
    from_str(&text).expect("JSON")
}

/// Returns the definitions of a file; those of a bundle one by one.
fn defined<'a>(file: &'a Value, list: &str) -> Vec<&'a Value> {
    match (&file[list], list) {
        (Value::Array(items), _) => items.iter().collect(),
        (_, "workflows") if file["nodes"].is_array() => vec![file],
        (_, "triggers") if file["condition"].is_object() => vec![file],
        _ => Vec::new(),
    }
}

#[test]
fn every_example_built_in_rust_equals_the_definition_in_its_file() {
    for (name, built, triggers) in examples() {
        let file = read(name);
        let parsed = defined(&file, "workflows").into_iter().map(|one| {
            let text = one.to_string();
            text.parse::<WorkflowDefinition>().expect("valid")
        });
        assert_eq!(built, parsed.collect::<Vec<_>>(), "{name}");
        // Triggers inside of a workflow are compared with the workflow.
        let is_trigger = |one: &&Value| one["condition"].is_object() || one["schedule"].is_object();
        let parsed = defined(&file, "triggers").into_iter().filter(is_trigger).map(|one| {
            let text = one.to_string();
            text.parse::<TriggerDefinition>().expect("valid")
        });
        assert_eq!(triggers, parsed.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn every_example_file_is_also_built_in_rust() {
    let named: BTreeSet<String> = examples().into_iter().map(|(name, ..)| name.to_owned()).collect();
    let mut open = vec![folder()];
    let mut found = BTreeSet::new();
    while let Some(folder_at) = open.pop() {
        for entry in std::fs::read_dir(&folder_at).expect("a folder") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(folder()).expect("below it").display().to_string();
            if path.extension().is_some_and(|end| end == "json") {
                let file = read(&name);
                if !defined(&file, "workflows").is_empty() || !defined(&file, "triggers").is_empty() {
                    found.insert(name);
                }
            }
        }
    }
    assert_eq!(named, found);
}
