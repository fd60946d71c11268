//! The audit log: events of `tracing` with the target `pirn::audit`, about requests that may change something and about refused ones.

use axum::http::{Method, StatusCode};
use axum::response::Response;

use crate::http::access::only_reads;
use crate::http::caller::Caller;
use crate::http::problem::ResponseProblemCode;
use crate::http::tenant::Tenant;

/// Logs a request with its sender and its answer, unless it only read something and was not refused. Without a caller, the sender is
/// unknown.
pub(crate) fn request(caller: Option<&Caller>, method: &Method, path: &str, response: &Response) {
    let status = response.status();
    let is_refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if only_reads(method) && !is_refused {
        return;
    }
    let code = response.extensions().get::<ResponseProblemCode>();
    tracing::info!(
        target: "pirn::audit",
        caller = caller.map(|caller| &*caller.name),
        tenant = caller.and_then(tenant),
        %method,
        path,
        status = status.as_u16(),
        code = code.map(|code| code.0),
        "request"
    );
}

/// Logs the start of a run, which may be the result of a request in any protocol.
pub(crate) fn started(caller: &Caller, run: &str) {
    tracing::info!(target: "pirn::audit", caller = &*caller.name, tenant = tenant(caller), run, "run started");
}

fn tenant(caller: &Caller) -> Option<&str> {
    caller.scope.0.as_ref().map(Tenant::name)
}
