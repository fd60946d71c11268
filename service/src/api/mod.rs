//! The routes, and the middleware around all of them.
#![allow(clippy::unused_async, reason = "axum's handlers are async functions")]

mod document;
mod forward;
mod front_ends;
mod guard;
mod health;
mod info;
mod inspection;
mod query;
mod recent_metrics;
mod run_list;
mod runs;
mod sessions;
mod status;
mod steering;
mod workflows;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::problem::{Problem, ProblemCode, ResponseProblemCode};
use crate::state::Service;
#[cfg(feature = "studio")]
use crate::studio::StudioMode;

/// The document served at `/openapi.json`; the routes register themselves.
#[derive(OpenApi)]
#[openapi(info(
    title = "Pirn",
    description = "Runs of LLM-agent workflows: start, watch, steer. Every error is application/problem+json."
))]
struct Document;

impl Service {
    /// Returns the routes.
    pub fn router(&self) -> axum::Router {
        router(self)
    }

    /// Returns only the routes `/healthz`, `/readyz` and `/metrics`, without a token, for an address that probes and the collector of
    /// metrics reach.
    pub fn health_router(&self) -> axum::Router {
        axum::Router::new()
            .route("/healthz", get(health::healthz))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .fallback(not_found)
            .with_state(self.clone())
    }
}

fn router(service: &Service) -> axum::Router {
    let (router, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(runs::start, run_list::list))
        .routes(routes!(runs::report))
        .routes(routes!(runs::events))
        .routes(routes!(inspection::history::steps))
        .routes(routes!(inspection::history::threads))
        .routes(routes!(inspection::history::definition))
        .routes(routes!(inspection::history::diff))
        .routes(routes!(inspection::requests::list))
        .routes(routes!(inspection::requests::show))
        .routes(routes!(inspection::requests::explain))
        .routes(routes!(steering::control::cancel))
        .routes(routes!(steering::control::pause))
        .routes(routes!(steering::control::resume))
        .routes(routes!(steering::control::emit))
        .routes(routes!(steering::control::pin))
        .routes(routes!(steering::messages::say))
        .routes(routes!(steering::control::park))
        .routes(routes!(steering::control::fork))
        .routes(routes!(status::stream))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(steering::open_questions::list))
        .routes(routes!(steering::interactions::list))
        .routes(routes!(steering::interactions::answer))
        .routes(routes!(workflows::list))
        .routes(routes!(workflows::show))
        .routes(routes!(inspection::orders::explore))
        .routes(routes!(inspection::orders::show))
        .routes(routes!(inspection::drawings::of_workflow))
        .routes(routes!(inspection::drawings::of_run))
        .routes(routes!(inspection::drawings::of_plan))
        .routes(routes!(front_ends::agui::run, front_ends::agui::again_for))
        .routes(routes!(front_ends::chat::run))
        .routes(routes!(front_ends::chat::resume))
        .routes(routes!(info::show))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(recent_metrics::show))
        .split_for_parts();
    document::complete(&mut document);
    let openapi = crate::http::json::Json(document);
    #[cfg(feature = "mcp")]
    let router = router.merge(crate::mcp::route(service));
    #[cfg(feature = "studio")]
    let router = match service.studio() {
        StudioMode::Off => router,
        StudioMode::Read | StudioMode::Full => router.merge(crate::studio::page::routes()),
    };
    router
        .route("/openapi.json", get(async move || openapi))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(service.clone(), guard::check))
        .layer(service.access().cors())
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(service.clone(), count))
        .with_state(service.clone())
}

async fn not_found(request: Request) -> Problem {
    Problem::new(
        ProblemCode::NotFound,
        format!("there is no path {}", request.uri().path()),
    )
}

async fn method_not_allowed(request: Request) -> Problem {
    let detail = format!("{} does not know {}", request.uri().path(), request.method());
    Problem::new(ProblemCode::MethodNotAllowed, detail)
}

fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    Problem::new(ProblemCode::Internal, "the request's handler panicked").into_response()
}

async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let refusal = response
        .extensions()
        .get::<ResponseProblemCode>()
        .map(|refusal| refusal.0);
    let metrics = service.metrics();
    // Arbitrary method names from clients would create an unbounded number of labels.
    let method = match method {
        _ if response.status() == StatusCode::METHOD_NOT_ALLOWED => "",
        Method::GET | Method::HEAD | Method::POST | Method::OPTIONS => method.as_str(),
        _other => "",
    };
    metrics.answered(
        method,
        route.as_deref().unwrap_or_default(),
        response.status().as_u16(),
        refusal,
    );
    response
}
