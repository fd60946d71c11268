//! HTTP requests to an MCP server, with an access token if the server's config has `oauth`.
//!
//! A restarted server may answer a request of an unknown session with 400 instead of 404, or with an error that has no request
//! id, so that no caller receives it. Both are reported as an expired session: the client then opens a new session and repeats
//! the request there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::token::Tokens;

type Refused = StreamableHttpError<reqwest::Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// HTTP client of one server.
#[derive(Clone)]
pub(super) struct OAuthHttpClient {
    client: Client,
    tokens: Option<Arc<Tokens>>,
    /// True if the server answered the last request with 401.
    is_refused: Arc<AtomicBool>,
}

impl OAuthHttpClient {
    pub(super) fn new(client: Client, tokens: Option<Arc<Tokens>>) -> Self {
        Self {
            client,
            tokens,
            is_refused: Arc::default(),
        }
    }

    /// Returns a flag that is true while the server answers 401. The errors of rmcp show the status only in their text.
    pub(super) fn is_refused(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_refused)
    }

    /// Sends a request with a token, and sets `is_refused` by the answer.
    async fn send<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        request: impl Fn(Option<String>) -> F,
    ) -> Result<T, Refused> {
        let answered = self.send_with_token(request).await;
        let is_refused = matches!(&answered, Err(error) if is_unauthorized(error));
        self.is_refused.store(is_refused, Ordering::Relaxed);
        answered
    }

    /// Sends a request with a token. If the server refuses the token, sends the request once more with another one.
    async fn send_with_token<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        request: impl Fn(Option<String>) -> F,
    ) -> Result<T, Refused> {
        let Some(tokens) = &self.tokens else {
            return request(None).await;
        };
        let no_token = |why: String| StreamableHttpError::Io(std::io::Error::other(why));
        let token = tokens.token().await.map_err(no_token)?;
        match request(Some(token.clone())).await {
            Err(error) if is_unauthorized(&error) => {
                let other = tokens.instead_of(&token).await.map_err(no_token)?;
                if other == token {
                    return Err(error);
                }
                request(Some(other)).await
            }
            answered => answered,
        }
    }
}

/// Returns true if the server answered 401.
fn is_unauthorized(error: &Refused) -> bool {
    match error {
        StreamableHttpError::AuthRequired(_) => true,
        StreamableHttpError::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        StreamableHttpError::UnexpectedServerResponse(said) => said.starts_with("HTTP 401"),
        _other => false,
    }
}

/// Converts the answers of a restarted server (see the module docs) into an expired session, or into an error outside a
/// session.
fn answered(
    answer: Result<StreamableHttpPostResponse, Refused>,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, Refused> {
    let refused = match &answer {
        Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), _)) if error.id.is_none() => {
            error.error.message.to_string()
        }
        Err(StreamableHttpError::UnexpectedServerResponse(said)) if said.starts_with("HTTP 400") => said.to_string(),
        Ok(_) | Err(_) => return answer,
    };
    Err(if has_session {
        StreamableHttpError::SessionExpired
    } else {
        StreamableHttpError::UnexpectedServerResponse(refused.into())
    })
}

impl StreamableHttpClient for OAuthHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let answer = self.send(|token| {
            let (uri, message) = (Arc::clone(&uri), message.clone());
            self.client
                .post_message(uri, message, session_id.clone(), token, headers.clone())
        });
        answered(answer.await, session_id.is_some())
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, Refused> {
        let answer = self.send(|token| {
            let (uri, message, session) = (Arc::clone(&uri), message.clone(), session_id.clone());
            self.client
                .post_message_with_max_sse_event_size(uri, message, session, token, headers.clone(), most)
        });
        answered(answer.await, session_id.is_some())
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), Refused> {
        self.send(|token| {
            self.client
                .delete_session(Arc::clone(&uri), Arc::clone(&session_id), token, headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Refused> {
        self.send(|token| {
            let (uri, session, last) = (Arc::clone(&uri), session_id.clone(), last_event_id.clone());
            self.client.get_stream(uri, session, last, token, headers.clone())
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Refused> {
        self.send(|token| {
            let (uri, session, last) = (Arc::clone(&uri), session_id.clone(), last_event_id.clone());
            self.client
                .get_stream_with_max_sse_event_size(uri, session, last, token, headers.clone(), most)
        })
        .await
    }
}
