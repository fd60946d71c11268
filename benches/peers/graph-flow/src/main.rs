//! Benchmarks of graph-flow 0.8.1, compared with Pirn and raw tokio, alternating in one process.
//!
//! Branches of graph-flow share one mutable context, without isolation. It has no events, and no join that ends before all
//! branches.

use std::sync::Arc;

use async_trait::async_trait;
use graph_flow::fanout::FanOutTask;
use graph_flow::{
    Context, ExecutionStatus, FlowRunner, Graph, GraphBuilder, InMemorySessionStorage, NextAction, Session,
    SessionStorage, Task, TaskResult,
};
use pirn_benches::workload::MESSAGES;
use pirn_benches::{Round, Side, Workload, timed, took};

fn main() -> std::io::Result<()> {
    pirn_benches::cli::main(vec![side()])
}

fn side() -> Side {
    Side {
        name: "graph-flow 0.8.1".to_owned(),
        run: Box::new(|workload| -> Round {
            Box::pin(async move {
                match workload {
                    Workload::Chain(nodes) => took(chain(nodes).await),
                    Workload::Fork(branches) => {
                        took(run(fan((0..branches).map(|n| Leaf(format!("b{n}")))), "fan", Context::new()).await)
                    }
                    Workload::Talk(branches) => {
                        let context = Context::with_max_chat_messages(MESSAGES + 2 * branches);
                        for n in 0..MESSAGES {
                            context.add_user_message(format!("{n} {}", "x".repeat(200)));
                        }
                        took(run(fan((0..branches).map(|n| Reply(format!("b{n}")))), "fan", context).await)
                    }
                    Workload::Map(_)
                    | Workload::Any(_)
                    | Workload::History(_)
                    | Workload::Events(_)
                    | Workload::Cpu(_)
                    | Workload::Runs(_) => None,
                }
            })
        }),
    }
}

/// Runs one session from its first task to its end.
async fn run(graph: Graph, first: &str, context: Context) -> f64 {
    let storage = Arc::new(InMemorySessionStorage::new());
    let runner = FlowRunner::new(Arc::new(graph), Arc::clone(&storage) as Arc<dyn SessionStorage>);
    let mut session = Session::new_from_task("s".to_owned(), first);
    session.context = context;
    storage.save(session).await.expect("in memory");
    // For `benches/run`, which counts the instructions of a process with and without this part.
    if std::env::var_os("PIRN_BENCH_PREPARE").is_some() {
        return 0.0;
    }
    let (us, done) = timed(async { runner.run("s").await.expect("no task fails").status }).await;
    assert!(matches!(done, ExecutionStatus::Completed));
    us
}

async fn chain(nodes: usize) -> f64 {
    let mut graph = GraphBuilder::new("chain");
    for n in 0..nodes {
        graph = graph.add_task(Arc::new(Next {
            id: format!("n{n}"),
            is_last: n + 1 == nodes,
        }));
    }
    for n in 1..nodes {
        graph = graph.add_edge(format!("n{}", n - 1), format!("n{n}"));
    }
    run(graph.build().expect("a chain"), "n0", Context::new()).await
}

fn fan<T: Task + 'static>(tasks: impl Iterator<Item = T>) -> Graph {
    let tasks: Vec<Arc<dyn Task>> = tasks.map(|task| Arc::new(task) as Arc<dyn Task>).collect();
    let fan = FanOutTask::new("fan", tasks).with_next_action(NextAction::ContinueAndExecute);
    let graph = GraphBuilder::new("fan").add_task(fan).add_task(Arc::new(Done));
    graph.add_edge("fan", "done").build().expect("a fan")
}

struct Next {
    id: String,
    is_last: bool,
}

#[async_trait]
impl Task for Next {
    fn id(&self) -> &str {
        &self.id
    }
    async fn run(&self, context: Context) -> graph_flow::Result<TaskResult> {
        let value: u64 = context.get("n").unwrap_or(0);
        context.set("n", value + 1)?;
        let next = if self.is_last {
            NextAction::End
        } else {
            NextAction::ContinueAndExecute
        };
        Ok(TaskResult::new(None, next))
    }
}

struct Leaf(String);

#[async_trait]
impl Task for Leaf {
    fn id(&self) -> &str {
        &self.0
    }
    async fn run(&self, _: Context) -> graph_flow::Result<TaskResult> {
        Ok(TaskResult::new(Some("1".to_owned()), NextAction::End))
    }
}

struct Reply(String);

#[async_trait]
impl Task for Reply {
    fn id(&self) -> &str {
        &self.0
    }
    async fn run(&self, context: Context) -> graph_flow::Result<TaskResult> {
        context.add_user_message("mine".to_owned());
        Ok(TaskResult::new(None, NextAction::End))
    }
}

struct Done;

#[async_trait]
impl Task for Done {
    fn id(&self) -> &str {
        "done"
    }
    async fn run(&self, _: Context) -> graph_flow::Result<TaskResult> {
        Ok(TaskResult::new(None, NextAction::End))
    }
}
