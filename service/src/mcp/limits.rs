//! Limits for MCP clients: on bodies, and on sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde::de::IgnoredAny;

use crate::body::{parse, received};
use crate::http::problem::{Problem, ProblemCode};
use crate::http::tenant::Tenant;
use crate::memory::MemoryReservation;
use crate::state::Service;

const SESSION: &str = "mcp-session-id";

/// Memory reserved for a request's values, which passes to the run that the request starts.
#[derive(Clone)]
pub(crate) struct InputMemory(Arc<Mutex<Option<MemoryReservation>>>);

impl InputMemory {
    pub(crate) fn take(&self) -> Option<MemoryReservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The MCP sessions of a service.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) service: Service,
    pub(crate) manager: Arc<LocalSessionManager>,
    owners: Arc<Mutex<HashMap<String, Option<Tenant>>>>,
}

impl Sessions {
    pub(crate) fn new(service: Service) -> Self {
        Self {
            service,
            manager: Arc::default(),
            owners: Arc::default(),
        }
    }

    /// True if the request names no session, or one of its sender's tenant.
    fn are_own(&self, request: &Request) -> bool {
        let Some(id) = request.headers().get(SESSION).and_then(|id| id.to_str().ok()) else {
            return true;
        };
        let owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // An unknown session has ended: the MCP server answers that.
        owners.get(id).is_none_or(|owner| *owner == tenant(request))
    }

    /// Records the tenant of a new session, and forgets those that have ended.
    async fn own(&self, id: String, tenant: Option<Tenant>) {
        let sessions = self.manager.sessions.read().await;
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() > 2 * self.service.limits().mcp_sessions {
            owners.retain(|id, _| sessions.contains_key(&**id));
        }
        owners.insert(id, tenant);
    }

    async fn are_too_many(&self, at_most: usize) -> bool {
        self.manager.sessions.read().await.len() > at_most
    }

    fn full(&self) -> Problem {
        let limit = self.service.limits().mcp_sessions;
        let detail = format!("{limit} MCP sessions are open, no more are admitted");
        Problem::new(ProblemCode::TooManySessions, detail).retry_after(5)
    }
}

/// Answers a request within the limits.
pub(crate) async fn bounded(State(sessions): State<Sessions>, request: Request, next: Next) -> Response {
    if !sessions.are_own(&request) {
        // As for a session that has ended: its existence is not revealed.
        return StatusCode::NOT_FOUND.into_response();
    }
    let has_session = request.headers().contains_key(SESSION);
    if request.method() != Method::POST {
        return answered(has_session, next.run(request).await);
    }
    let tenant = tenant(&request);
    let limit = sessions.service.limits().mcp_sessions;
    // Check before the body is read: a request that is refused here costs no memory.
    if !has_session && sessions.are_too_many(limit.saturating_sub(1)).await {
        return sessions.full().into_response();
    }
    let (mut parts, body) = request.into_parts();
    let (bytes, memory) = match received(body, &sessions.service).await {
        Ok(received) => received,
        Err(problem) => return problem.into_response(),
    };
    // The MCP library parses the body again, and would take the last of two equal keys or round a large integer silently.
    if let Err(problem) = parse::<IgnoredAny>(&bytes) {
        return problem.into_response();
    }
    let memory = InputMemory(Arc::new(Mutex::new(Some(memory))));
    parts.extensions.insert(memory.clone());
    let response = answered(
        has_session,
        next.run(Request::from_parts(parts, Body::from(bytes))).await,
    );
    // Check the limit again: several clients may have opened a session concurrently.
    if let Some(id) = new_session(has_session, response.headers()) {
        if !sessions.are_too_many(limit).await {
            sessions.own(id, tenant).await;
            return response;
        }
        if let Err(error) = sessions.manager.close_session(&id.into()).await {
            tracing::debug!(%error, "the MCP session was closed before");
        }
        return sessions.full().into_response();
    }
    response
}

/// Returns an answer of the MCP library as the client receives it.
fn answered(has_session: bool, response: Response) -> Response {
    // The library answers 500 if the session ends while the request is delivered to it. MCP requires 404 for a session that has ended:
    // the client then opens another one.
    if has_session && response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        return StatusCode::NOT_FOUND.into_response();
    }
    response
}

fn tenant(request: &Request) -> Option<Tenant> {
    request.extensions().get::<Service>()?.scope().0.clone()
}

fn new_session(had_one: bool, headers: &HeaderMap) -> Option<String> {
    let id = headers.get(SESSION).filter(|_| !had_one)?;
    id.to_str().ok().map(str::to_owned)
}
