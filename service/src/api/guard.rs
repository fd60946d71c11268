//! The check of every request before its handler: the size of its headers, and the access rules and rights of its
//! sender.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::audit;
use crate::http::access::only_reads;
use crate::http::caller::{Caller, Role};
use crate::http::problem::{Problem, ProblemCode};
use crate::state::Service;
#[cfg(feature = "studio")]
use crate::studio::StudioMode;

/// Paths without access checks, for health probes: their answers reveal nothing about the runs.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Checks a request: forwards it to the next layer with the service of its sender, or answers with a problem.
pub(super) async fn check(State(service): State<Service>, mut request: Request, next: Next) -> Response {
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
    let access = service.access();
    #[cfg(feature = "studio")]
    if service.studio() != StudioMode::Off && crate::studio::page::is_page(request.uri().path()) {
        return match access.check_source(request.headers(), request.uri()) {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    }
    let sender = access.check(request.headers(), request.uri()).await;
    let known = sender.as_ref().ok().cloned();
    let checked = sender.and_then(|caller| {
        service.studio().check(request.method(), request.headers())?;
        check_rights(&caller, &request)?;
        Ok(caller)
    });
    // Copied only for the log, because the request is moved.
    let audited = access
        .needs_token()
        .then(|| (request.method().clone(), request.uri().path().to_owned()));
    let (caller, response) = match checked {
        Ok(caller) => {
            let service = service.of_caller(caller.clone());
            request.extensions_mut().insert(service);
            (Some(caller), next.run(request).await)
        }
        Err(problem) => (known, problem.into_response()),
    };
    if let Some((method, path)) = audited {
        audit::request(caller.as_ref(), &method, &path, &response);
    }
    response
}

/// Checks the role that a route needs. A new route needs `run`, or `read` if it only reads.
fn check_rights(caller: &Caller, request: &Request) -> Result<(), Problem> {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str);
    // The router may be nested under a path.
    let is = |end: &str| route.ends_with(end);
    let reads = only_reads(request.method());
    if is("/metrics") || is("/v1/metrics/recent") {
        return check_metrics(caller);
    }
    caller.check(if reads {
        Role::Read
    } else if is("/v1/interactions/{id}") {
        Role::Answer
    } else {
        Role::Run
    })
}

/// Checks the access to figures that sum up the runs of all tenants.
fn check_metrics(caller: &Caller) -> Result<(), Problem> {
    if caller.scope.0.is_some() {
        let detail = "the metrics concern all tenants, and the token belongs to one";
        return Err(Problem::new(ProblemCode::Forbidden, detail));
    }
    caller.check(Role::Read)
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
