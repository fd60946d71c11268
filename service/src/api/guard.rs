//! The check of every request before its handler: the size of its headers, and the access rules.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;
#[cfg(feature = "studio")]
use crate::studio::StudioMode;

/// Paths without access checks, for health probes: their answers reveal nothing about the runs.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Checks a request: forwards it to the next layer, or answers with a problem.
pub(super) async fn check(State(service): State<Service>, request: Request, next: Next) -> Response {
    service.enter_runtime();
    if header_bytes(&request) > service.limits().header_bytes {
        let detail = format!(
            "the line and the headers of a request have at most {} bytes",
            service.limits().header_bytes
        );
        return Problem::new(ProblemCode::HeadersTooLarge, detail).into_response();
    }
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match check_access(&service, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check_access(service: &Service, request: &Request) -> Result<(), Problem> {
    let access = service.access();
    #[cfg(feature = "studio")]
    if service.studio() != StudioMode::Off && crate::studio::page::is_page(request.uri().path()) {
        return access.check_source(request.headers(), request.uri());
    }
    access.check(request.headers(), request.uri())?;
    service.studio().check(request.method(), request.headers())
}

/// Returns the bytes of a request's line and headers. The limit must be checked here: the server's read buffer may exceed it.
fn header_bytes(request: &Request) -> usize {
    /// Bytes of the spaces, the version and the line break in the request line.
    const LINE: usize = " ".len() + " HTTP/1.1\r\n".len();
    /// Bytes of the colon, the space and the line break in a header field.
    const FIELD: usize = ": \r\n".len();
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD);
    request.method().as_str().len() + target + LINE + fields.sum::<usize>()
}
