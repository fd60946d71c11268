//! Runs in Restate, compared with a service that executes the steps of a run in one call, as users of Restate write it.
//!
//! The time of a run starts when it is sent to the server, and ends when the starter receives its end: the answer of a bare call,
//! or the server's promise for a run. All runs of a round are sent, and may be executed, concurrently, like the bare calls.
#![allow(missing_docs, reason = "the macro generates the client in this module")]

use std::io::{Error, Result};
use std::net::SocketAddr;

use futures::future::try_join_all;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use pirn_benches::compare::Times;
use pirn_benches::timed;
use pirn_restate::{Endpoint, RestateOptions, RestateStore};
use restate_sdk::context::{Context, ContextSideEffects as _, RunFuture as _};
use restate_sdk::errors::HandlerError;
use restate_sdk::hyper::HyperEndpoint;
use restate_sdk::serde::Json;
use restate_sdk::service::IntoServiceDefinition as _;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use super::{ROUNDS, Worker, rows, say};
use crate::durable::{ANSWER, Line, close, engine, sorted};
use crate::restate_server::{Server, free_port};

/// Concurrent calls on one connection, like those of Pirn's workers. For more calls the server opens more connections, which
/// spreads them over workers.
const CALLS: u32 = 16;

/// Passes each row to `tell` as soon as it is measured. No rows if no server can be installed.
///
/// # Errors
/// Fails if the server, a worker or `tell` does.
pub(crate) async fn measure(tell: impl FnMut(Line) -> Result<()>) -> Result<()> {
    if Server::start().is_none() {
        return Ok(());
    }
    rows("Restate", "a bare service", in_turns, tell).await
}

/// Measures rounds of several workers with concurrent runs, on Pirn and on the bare service. Returns microseconds.
async fn in_turns(workers: usize, (_, steps, runs): (usize, usize, usize)) -> Result<(Times, Times)> {
    let server = Server::start().ok_or_else(|| Error::other("the server does not start"))?;
    let crowd = |side: &'static str| {
        let port = free_port().to_string();
        let place = [server.url(), server.admin(), port, runs.to_string(), steps.to_string()];
        (0..workers)
            .map(move |_| {
                Worker::start(
                    ["restate-worker", side]
                        .into_iter()
                        .chain(place.iter().map(String::as_str)),
                )
                .map(|worker| (worker, place[2].clone()))
            })
            .collect::<Result<Vec<_>>>()
    };
    let (own, bare) = (crowd("pirn")?, crowd("bare")?);
    let mut crowds = Vec::new();
    for (worker, port) in own.into_iter().chain(bare) {
        let mut worker = worker;
        worker.expect("ready").await?;
        crowds.push((worker, port));
    }
    let bare = Bare {
        http: reqwest::Client::new(),
        url: server.url(),
        admin: server.admin(),
    };
    let port = crowds.last().map(|(_, port)| port.clone()).unwrap_or_default();
    bare.register(&port).await?;
    let options = RestateOptions::default().admin(server.admin());
    let store = RestateStore::connect(&server.url(), options).map_err(Error::other)?;
    let puts = engine(store, steps)?;
    let (mut own_us, mut bare_us) = (Vec::new(), Vec::new());
    for (worker, _) in &mut crowds {
        worker.tell("go").await?;
    }
    // The first round of each is a warm-up.
    for round in 0..=ROUNDS {
        let (us, put) = timed(async {
            let put = (0..runs).map(|_| puts.run("main").enqueue());
            let begun = try_join_all(put).await.map_err(Error::other)?;
            let claims = puts.store().and_then(|store| store.claims());
            let claims = claims.ok_or_else(|| Error::other("a store that is not shared"))?;
            let ended = begun.iter().map(|run| claims.ended(run));
            try_join_all(ended).await.map_err(Error::other)?;
            Result::Ok(())
        })
        .await;
        put?;
        let (beside, called) = timed(bare.play(runs)).await;
        called?;
        if round > 0 {
            own_us.push(us);
            bare_us.push(beside);
        }
    }
    for (worker, _) in &mut crowds {
        worker.tell("stop").await?;
        worker.expect("stopped").await?;
    }
    close(puts).await;
    Ok((sorted("pirn", own_us), sorted("bare", bare_us)))
}

/// Main function of a worker process: works from `go` to `stop`, until its input ends.
///
/// # Errors
/// Fails if the server does.
pub(crate) async fn work(side: &str, [url, admin]: [&str; 2], port: u16, at_once: usize, steps: usize) -> Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut words = super::words();
    match side {
        "pirn" => {
            let options = RestateOptions::default().admin(admin).endpoint(Endpoint::at(address));
            let store = RestateStore::connect(url, options).map_err(Error::other)?;
            let engine = engine(store, steps)?;
            say("ready").await?;
            while words.next_line().await?.is_some() {
                tokio::select! {
                    worked = engine.work(at_once) => worked.map_err(Error::other)?,
                    _stop = words.next_line() => {}
                }
                say("stopped").await?;
            }
            close(engine).await;
            Ok(())
        }
        "bare" => {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(true)?;
            socket.bind(address)?;
            let listener = socket.listen(1_024)?;
            let bound = restate_sdk::endpoint::Endpoint::builder().bind(BareRun { steps }.into_service_definition());
            let service = HyperEndpoint::new(bound.build());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let service = service.clone();
                    tokio::spawn(async move {
                        stream.set_nodelay(true).unwrap_or(());
                        let mut builder = Builder::new(TokioExecutor::new());
                        builder.http2().max_concurrent_streams(CALLS);
                        // After an error the server reconnects.
                        drop(builder.serve_connection(TokioIo::new(stream), service).await);
                    });
                }
            });
            say("ready").await?;
            while words.next_line().await?.is_some() {
                words.next_line().await?;
                say("stopped").await?;
            }
            Ok(())
        }
        other => Err(Error::other(format!("unknown side {other}"))),
    }
}

struct BareRun {
    steps: usize,
}

#[restate_sdk::service(name = "BareRun")]
impl BareRun {
    #[handler]
    async fn main(&self, ctx: Context<'_>, input: Json<u64>) -> std::result::Result<Json<u64>, HandlerError> {
        for number in 0..self.steps {
            let answer = async || Ok(Json(json!("x".repeat(ANSWER))));
            let _: Json<Value> = ctx.run(answer).name(format!("step {number}")).await?;
        }
        Ok(input)
    }
}

/// Client that starts bare runs.
struct Bare {
    http: reqwest::Client,
    url: String,
    admin: String,
}

impl Bare {
    async fn post(&self, url: String, body: Value) -> Result<Value> {
        let asked = self.http.post(url).header("accept", "application/json").json(&body);
        let answer = asked.send().await.map_err(Error::other)?;
        let answer = answer.error_for_status().map_err(Error::other)?;
        answer.json().await.map_err(Error::other)
    }

    async fn register(&self, port: &str) -> Result<()> {
        let body = json!({"uri": format!("http://127.0.0.1:{port}")});
        self.post(format!("{}/deployments", self.admin), body).await.map(drop)
    }

    async fn play(&self, runs: usize) -> Result<()> {
        let call = |_| self.post(format!("{}/BareRun/main", self.url), json!(0));
        try_join_all((0..runs).map(call)).await.map(drop)
    }
}
